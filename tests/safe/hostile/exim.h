/* A minimal Exim: the functions and variables that stock builds export, and the
 * tables that they do not export. */

#ifndef SMALL_EXIM_H
#define SMALL_EXIM_H

#include <stdbool.h>
#include <stddef.h>

/* One variable or option; both tables are sorted by name. */
typedef struct {
  const char *name;
  int type;
  void *value;
} entry;

enum { NUMBER = 1, TEXT = 4, OTHER = 7 };

/* The table that expansions use. */
extern const entry *live;
extern size_t live_entries;

/* Called before each expansion, so that a test can check its memory. */
extern void (*before_expanding)(void);
extern unsigned long expansions;

/* Number of the library's calls of getenv. */
extern unsigned long getenv_calls;

const char *expand_string(const char *text);
void *store_get_3(int size, const void *proto, const char *function, int line);

/* Whether a text is in tainted store; `store_holds`: in any store. */
bool store_is_tainted(const void *text);
bool store_holds(const void *text);
void store_forget(void);

/* The entry points of the library. */
typedef int dlfunc(const char **yield, int argc, const char **argv);
typedef struct {
  const char *name;
  int type;
  unsigned acquisition;
  void *(*open)(const char *, const char **);
  void *check;
  int (*find)(void *, const char *, const char *, int, const char **, const char **, unsigned *,
              const char *);
} lookup_info;
typedef struct {
  unsigned magic;
  lookup_info **lookups;
  unsigned count;
} lookup_module_info;

extern dlfunc *ratelimit, *ratelimit_info, *record, *recorded;
extern lookup_info *lookup, *policy_lookup;
void load(const char *library);
void load_trace(const char *library);

/* Prints an error and ends the program. */
_Noreturn void fail(const char *format, ...);

#endif
