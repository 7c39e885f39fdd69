#define _GNU_SOURCE
#include "exim.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

unsigned long expansions, getenv_calls;
void (*before_expanding)(void);

_Noreturn void fail(const char *format, ...)
{
  va_list list;
  va_start(list, format);
  fputs("FAULT: ", stdout);
  vprintf(format, list);
  putchar('\n');
  fflush(stdout);
  exit(1);
}

/* Store: each allocation is a separate block, so that valgrind detects an access
 * beyond its end. */

typedef struct block {
  struct block *next;
  int size;
  bool tainted;
  char bytes[];
} block;

static block *blocks;

API void *store_get_3(int size, const void *proto, const char *function, int line)
{
  (void)function, (void)line;
  block *new = malloc(sizeof(block) + (size_t)size);
  if (size < 0 || !new) fail("%d bytes of store were requested", size);
  *new = (block){.next = blocks, .size = size, .tainted = proto == (void *)1};
  blocks = new;
  return new->bytes;
}

static const block *block_of(const void *text)
{
  const char *at = text;
  for (const block *b = blocks; b; b = b->next)
    if (at >= b->bytes && at < b->bytes + b->size) return b;
  return NULL;
}

bool store_holds(const void *text) { return block_of(text); }

bool store_is_tainted(const void *text)
{
  const block *b = block_of(text);
  return b && b->tainted;
}

void store_forget(void)
{
  while (blocks) {
    block *next = blocks->next;
    free(blocks);
    blocks = next;
  }
}

/* Expansions: only variables, and literal text. */

API const char *expand_string(const char *text)
{
  static char result[1 << 16];
  size_t length = 0;
  expansions++;
  if (before_expanding) before_expanding();
  /* Root has started it: what it evaluates counts. */
  if (!strcmp(text, "$caller_uid")) return "0";
  while (*text) {
    if (*text != '$') {
      result[length++] = *text++;
      continue;
    }
    size_t name = strspn(++text, "abcdefghijklmnopqrstuvwxyz_0123456789");
    for (size_t n = 0; n < live_entries; n++) {
      const entry *e = &live[n];
      if (strlen(e->name) != name || strncmp(e->name, text, name)) continue;
      if (e->type == NUMBER) {
        length += (size_t)sprintf(result + length, "%d", *(int *)e->value);
      } else if (e->type == TEXT && *(char **)e->value) {
        length = (size_t)(stpcpy(result + length, *(char **)e->value) - result);
      }
    }
    text += name;
  }
  char *copy = store_get_3((int)length + 1, NULL, __func__, __LINE__);
  memcpy(copy, result, length);
  copy[length] = 0;
  return copy;
}

/* The logs. The text is formatted, which reads all of it, and discarded. */

static unsigned long written;

static void swallow(const char *format, va_list list)
{
  static char line[1 << 17];
  written += (unsigned long)vsnprintf(line, sizeof line, format, list);
}

API void debug_printf(const char *format, ...)
{
  va_list list;
  va_start(list, format);
  swallow(format, list);
  va_end(list);
}

API void log_write(unsigned selector, int flags, const char *format, ...)
{
  (void)selector, (void)flags;
  va_list list;
  va_start(list, format);
  swallow(format, list);
  va_end(list);
}

/* Called by the library only: the C library uses its own, and this program does
 * not call it. */
API char *getenv(const char *name)
{
  (void)name;
  getenv_calls++;
  return "1";
}

API char *secure_getenv(const char *name) { return getenv(name); }

dlfunc *ratelimit, *ratelimit_info, *record, *recorded;
lookup_info *lookup, *policy_lookup;

/* Loads the library as Exim does. */
void load(const char *library)
{
  void *handle = dlopen(library, RTLD_LAZY);
  if (!handle) fail("%s", dlerror());
  ratelimit = (dlfunc *)dlsym(handle, "ratelimit");
  ratelimit_info = (dlfunc *)dlsym(handle, "ratelimit_info");
  lookup_module_info *module = dlsym(handle, "_lookup_module_info");
  if (!ratelimit || !ratelimit_info || !module) fail("entry points are missing");
  if (module->magic != 0x4c4d4935) fail("magic %x is not that of Exim 4.96", module->magic);
  if (module->count != 2) fail("%u lookups", module->count);
  lookup = module->lookups[0];
  policy_lookup = module->lookups[1];
}

void load_trace(const char *library)
{
  void *handle = dlopen(library, RTLD_LAZY);
  if (!handle) fail("%s", dlerror());
  record = (dlfunc *)dlsym(handle, "record");
  recorded = (dlfunc *)dlsym(handle, "recorded");
  if (!record || !recorded) fail("entry points of the trace store are missing");
}
