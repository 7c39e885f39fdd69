/* A program that loads lookup modules as Exim does and exports the functions that
Exim exports to them. It replaces versions of Exim that no Debian package builds
with modules, and programs other than Exim.

  host MODULE SPOOL QUERY...

HOST is the version of Exim that it simulates: 496 (to 4.98), 499, 4100, or 0 for a
program other than Exim. */

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if HOST == 4100
# define MAGIC 0x4c4d4936
#else
# define MAGIC 0x4c4d4935
#endif

typedef unsigned char uschar;

/* As in lookupapi.h of that version. */
typedef struct {
  uschar *name;
  int type;
#if HOST >= 499
  unsigned acq_num;
#endif
  void *(*open)(const uschar *, uschar **);
  int (*check)(void *, const uschar *, int, void *, void *, uschar **);
  int (*find)(void *, const uschar *, const uschar *, int, uschar **, uschar **,
    unsigned *, const uschar *);
  void (*close)(void *);
  void (*tidy)(void);
  uschar *(*quote)(uschar *, uschar *, unsigned);
  void *(*version_report)(void *);
#if HOST == 4100
  void *options;
  unsigned options_count;
  void *variables;
  unsigned variables_count;
#endif
} lookup_info;

typedef struct {
  unsigned magic;
  lookup_info **lookups;
  unsigned lookupcount;
} lookup_module_info;

#if HOST
static const char *spool;

/* Only the name of a variable is expanded here. */
static const char *
expand(const char *string)
{
if (strcmp(string, "$caller_uid") == 0) return "0";
return strcmp(string, "$spool_directory") == 0 ? spool : "";
}

# if HOST == 4100
const char *expand_string_2(const char *string, unsigned char *cached)
{ return expand(string); }
# else
const char *expand_string(const char *string) { return expand(string); }
# endif

void *store_get_3(int size, const void *proto, const char *func, int line)
{ return malloc(size); }

void *string_catn(void *string, const char *text, int length)
{ return strncat(string, text, length); }
#endif

int
main(int argc, char **argv)
{
/* Loads each module as Exim does, with Exim's messages. */
void *dl = dlopen(argv[1], RTLD_NOW);
if (!dl) { printf("Error loading: %s\n", dlerror()); return 1; }
lookup_module_info *info = dlsym(dl, "_lookup_module_info");
if (!info) { printf("does not appear to be a lookup module\n"); return 1; }
if (info->magic != MAGIC)
  {
  printf("Lookup module is not compatible with this version of Exim\n");
  return dlclose(dl);
  }

#if HOST
spool = argv[2];
for (unsigned j = 0; j < info->lookupcount; j++)
  {
  lookup_info *li = info->lookups[j];
# if HOST >= 499
  li->acq_num = 40 + j;
# endif
  char version[256] = "";
  printf("lookup %s type %d\n", li->name, li->type);
  if (li->version_report) printf("%s", (char *)li->version_report(version));
  uschar *message = NULL;
  void *handle = li->open(NULL, &message);
  if (!handle) { printf("cannot be opened: %s\n", message); return 1; }
  for (int n = 3; n < argc; n++)
    {
    uschar *result = NULL;
    unsigned seconds = 4711;
    message = (uschar *)"";
    int code = li->find(handle, NULL, (uschar *)argv[n], strlen(argv[n]),
      &result, &message, &seconds, NULL);
    printf("%d|%s|%s|cached for %u\n", code, result ? (char *)result : "", message, seconds);
    }
  if (li->close) li->close(handle);
  if (li->tidy) li->tidy();
# if HOST >= 499
  if (li->acq_num != 40 + j) printf("the acquisition number has changed\n");
# endif
  }
#endif
return 0;
}
