// A clock that a test sets, for a process that loads this library first.
//
// A file says what time it is: "+SECONDS" or "-SECONDS" from the machine's, or "@SECONDS", at which
// the clock stands still. The variable FAKE_CLOCK names the file; for programs that are started
// without it, such as those that a setuid Exim starts, it is /etc/fake-clock. Only the time of day
// changes: neither waiting nor the times of files. Unlike libfaketime it has nothing in /dev/shm,
// which a process of another user may not open where fs.protected_regular is set, as it is in Debian.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static char path[4096] = "/etc/fake-clock";

// A program may change its environment later.
__attribute__((constructor)) static void remember_path(void) {
  const char *given = getenv("FAKE_CLOCK");
  if (given && strlen(given) < sizeof path) strcpy(path, given);
}

static int now(clockid_t clock, struct timespec *time) {
  int failed = syscall(SYS_clock_gettime, clock, time);
  if (failed || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return failed;
  int before = errno;
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file >= 0) {
    char text[32] = "";
    if (read(file, text, sizeof text - 1) > 0) {
      if (*text == '@') {
        time->tv_sec = 0;
        time->tv_nsec = 0;
      }
      time->tv_sec += strtoll(text + (*text == '@'), 0, 10);
    }
    close(file);
  }
  errno = before;
  return 0;
}

int clock_gettime(clockid_t clock, struct timespec *time) { return now(clock, time); }

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
  struct timespec at;
  int failed = now(CLOCK_REALTIME, &at);
  (void)zone;
  if (!failed) {
    time->tv_sec = at.tv_sec;
    time->tv_usec = at.tv_nsec / 1000;
  }
  return failed;
}

time_t time(time_t *seconds) {
  struct timespec at;
  if (now(CLOCK_REALTIME, &at)) return -1;
  if (seconds) *seconds = at.tv_sec;
  return at.tv_sec;
}
