/* The floor under every check in Exim: a dlfunc that does nothing, and one
   that does no more than lock and unlock a file. Built by the benchmark. */
#include <fcntl.h>
#include <sys/file.h>

typedef unsigned char uschar;

int nothing(uschar **yield, int argc, uschar *argv[]) {
  (void)argc;
  (void)argv;
  *yield = (uschar *)"no";
  return 0;
}

/* argv[0]: the file. */
int lock(uschar **yield, int argc, uschar *argv[]) {
  static int fd = -1;
  if (argc < 1) return 2;
  if (fd < 0) fd = open((char *)argv[0], O_RDWR | O_CREAT | O_CLOEXEC, 0640);
  if (fd < 0 || flock(fd, LOCK_EX) != 0) {
    *yield = (uschar *)"cannot lock";
    return 2;
  }
  flock(fd, LOCK_UN);
  *yield = (uschar *)"no";
  return 0;
}
