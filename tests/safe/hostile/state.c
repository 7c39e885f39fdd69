#define _GNU_SOURCE
#include "state.h"
#include "exim.h"

#include <dirent.h>
#include <errno.h>
#include <fenv.h>
#include <locale.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Each of 256 shards is opened once. The others are directories, files of the trace
 * store, and files that were open before (valgrind opens some). */
enum { MOST_FILES = 256 + 24 };

static struct state {
  char directory[4096];
  mode_t umask;
  struct { void *handler; int flags; uint64_t mask; } actions[65];
  sigset_t blocked;
  char **environment;
  uint64_t environment_sum;
  char locale[256];
  int rounding, traps, priority, dumpable, privileges, threads;
  uid_t users[3], groups[3];
  struct rlimit limits[RLIM_NLIMITS];
  struct itimerval timers[3];
  dev_t devices[3];
  ino_t inodes[3];
} before;

static int entries_of(const char *path)
{
  DIR *directory = opendir(path);
  int count = -2; /* . and .. */
  if (!directory) fail("%s cannot be read", path);
  while (readdir(directory)) count++;
  closedir(directory);
  return count;
}

static void look(struct state *now)
{
  memset(now, 0, sizeof *now);
  if (!getcwd(now->directory, sizeof now->directory)) fail("no working directory");
  now->umask = umask(0);
  umask(now->umask);
  for (int n = 1; n < 65; n++) {
    /* The C library reserves two signals. */
    struct sigaction action;
    if (sigaction(n, NULL, &action)) continue;
    now->actions[n].handler = (void *)action.sa_handler;
    now->actions[n].flags = action.sa_flags;
    memcpy(&now->actions[n].mask, &action.sa_mask, sizeof now->actions[n].mask);
  }
  sigprocmask(SIG_BLOCK, NULL, &now->blocked);
  now->environment = environ;
  now->environment_sum = 14695981039346656037u;
  for (char **variable = environ; *variable; variable++)
    for (char *c = *variable; *c; c++)
      now->environment_sum = (now->environment_sum ^ (unsigned char)*c) * 1099511628211u;
  snprintf(now->locale, sizeof now->locale, "%s", setlocale(LC_ALL, NULL));
  now->rounding = fegetround();
  now->traps = fegetexcept();
  now->priority = getpriority(PRIO_PROCESS, 0);
  now->dumpable = prctl(PR_GET_DUMPABLE);
  now->privileges = prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0);
  now->threads = entries_of("/proc/self/task");
  getresuid(&now->users[0], &now->users[1], &now->users[2]);
  getresgid(&now->groups[0], &now->groups[1], &now->groups[2]);
  for (int n = 0; n < RLIM_NLIMITS; n++) getrlimit(n, &now->limits[n]);
  for (int n = 0; n < 3; n++) {
    struct stat file;
    getitimer(n, &now->timers[n]);
    if (fstat(n, &file)) continue;
    now->devices[n] = file.st_dev;
    now->inodes[n] = file.st_ino;
  }
}

void remember_state(void) { look(&before); }

#define SAME(field) \
  if (memcmp(&before.field, &now.field, sizeof now.field)) fail(#field " has changed")

void check_state(void)
{
  static struct state now;
  look(&now);
  SAME(directory);
  SAME(umask);
  SAME(actions);
  SAME(blocked);
  SAME(environment);
  SAME(environment_sum);
  SAME(locale);
  SAME(rounding);
  SAME(traps);
  SAME(priority);
  SAME(dumpable);
  SAME(privileges);
  SAME(threads);
  SAME(users);
  SAME(groups);
  SAME(limits);
  SAME(timers);
  SAME(devices);
  SAME(inodes);
  if (waitpid(-1, NULL, WNOHANG) != -1 || errno != ECHILD) fail("there are children");
  int files = entries_of("/proc/self/fd");
  if (files > MOST_FILES) fail("%d files are open", files);
}

long anonymous_memory(void)
{
  char line[256];
  long kilobytes = -1;
  FILE *file = fopen("/proc/self/status", "r");
  if (!file) fail("no /proc/self/status");
  while (fgets(line, sizeof line, file)) sscanf(line, "RssAnon: %ld", &kilobytes);
  fclose(file);
  if (kilobytes < 0) fail("no RssAnon in /proc/self/status");
  return kilobytes * 1024;
}
