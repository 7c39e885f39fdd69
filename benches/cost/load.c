/* How long a fresh process takes to load a library as Exim does: prints the
   nanoseconds of dlopen and one dlsym, of the function that is named. Built by the benchmark. */
#include <dlfcn.h>
#include <stdio.h>
#include <time.h>

int main(int argc, char *argv[]) {
  struct timespec start, end;
  if (argc < 3) return 2;
  clock_gettime(CLOCK_MONOTONIC, &start);
  void *library = dlopen(argv[1], RTLD_LAZY);
  void *function = library ? dlsym(library, argv[2]) : NULL;
  clock_gettime(CLOCK_MONOTONIC, &end);
  if (!function) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  printf("%lld\n", (end.tv_sec - start.tv_sec) * 1000000000LL + (end.tv_nsec - start.tv_nsec));
  return 0;
}
