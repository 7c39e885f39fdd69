/* Wrong tables of variables:
 *
 *     tables LIBRARY SPOOL CASE
 *
 * Expansions use a table that the library cannot find. The table that it can find
 * is changed according to CASE. The library must then not use it, and no word that
 * either table points to may change, not even temporarily. */

#define _GNU_SOURCE
#include "exim.h"
#include "variables.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define API __attribute__((visibility("default")))

/* Other symbols, exported under the names of the variables. */
#if EXPORTED > 1
#undef sender_rate
#undef sender_rate_limit
#undef sender_rate_period
#endif
#if EXPORTED == 2
API const char *const sender_rate = "a", *const sender_rate_limit, *const sender_rate_period;
#elif EXPORTED == 3
API void sender_rate(void) {}
API void sender_rate_limit(void) {}
API void sender_rate_period(void) {}
#endif
#if EXPORTED > 1
#define sender_rate own_sender_rate
#endif

/* Words that must not be written to. */
static uintptr_t taken[3] = {1, 2, 3}, zeros[4];
static int numbers[6] = {1, 2, 3, 4, 5, 6};
static const uintptr_t constants[3] = {1, 2, 3};
/* Read-only after the loader has relocated it (RELRO). */
static const uintptr_t *const sealed[3] = {constants, constants, constants};

static struct { const uintptr_t *word; uintptr_t value; } watched[512];
static size_t watches;

static void watch(const void *word)
{
  memcpy(&watched[watches].value, word, sizeof(uintptr_t));
  watched[watches++].word = word;
}

static void look(void)
{
  for (size_t n = 0; n < watches; n++)
    if (*watched[n].word != watched[n].value) fail("a word was written to, at %p", watched[n].word);
}

static entry *find(const char *name)
{
  for (size_t n = 0; n < variables_count; n++)
    if (!strcmp(variables[n].name, name)) return &variables[n];
  fail("no variable %s", name);
}

/* Makes the three entries point to words `step` bytes apart. */
static void lead(entry *rate, void *to, size_t step)
{
  for (int n = 0; n < 3; n++) rate[n].value = (char *)to + n * step;
}

static void spoil(const char *what)
{
  entry *rate = find("sender_rate");
  enum { WORD = sizeof(void *) };
#define CASE(name) if (!strcmp(what, name))
  CASE("right") return;
  CASE("none") { memset(variables, 0, variables_count * sizeof *variables); return; }
  CASE("no rate") { rate[0].name = "sender_rat"; return; }
  CASE("no limit") { rate[1].name = "sender_rate_l"; return; }
  CASE("no period") { rate[2].name = "sender_rate_p"; return; }
  CASE("cut short") { memset(rate + 2, 0, (char *)(variables + variables_count) - (char *)(rate + 2)); return; }
  CASE("unsorted") { entry e = rate[1]; rate[1] = rate[2]; rate[2] = e; return; }
  CASE("names on the heap") {
    for (size_t n = 0; n < variables_count; n++) variables[n].name = strdup(variables[n].name);
    return;
  }
  CASE("moved by one") {
    for (size_t n = 0; n + 1 < variables_count; n++) variables[n].value = variables[n + 1].value;
    return;
  }
  CASE("moved by a page") {
    for (size_t n = 0; n < variables_count; n++) variables[n].value = (char *)variables[n].value + 4096;
    return;
  }
  CASE("one of another kind") { rate[1].type = NUMBER; return; }
  CASE("all of another kind") { for (int n = 0; n < 3; n++) rate[n].type = OTHER; return; }
  CASE("numbers") {
    for (int n = 0; n < 3; n++) rate[n].type = NUMBER;
    lead(rate, numbers, WORD);
    return;
  }
  CASE("nothing but strings") {
    for (size_t n = 0; n < variables_count; n++) variables[n].type = TEXT;
    return;
  }
  CASE("taken") { lead(rate, taken, WORD); return; }
  CASE("zeros") { lead(rate, zeros, WORD); return; }
  CASE("one word") { lead(rate, zeros, 0); return; }
  CASE("unaligned") { lead(rate, (char *)zeros + 4, WORD); return; }
  CASE("constants") { lead(rate, (void *)constants, WORD); return; }
  CASE("sealed") { lead(rate, (void *)sealed, WORD); return; }
  CASE("code") { lead(rate, (void *)(uintptr_t)spoil, WORD); return; }
  CASE("heap") { lead(rate, calloc(3, WORD), WORD); return; }
  CASE("a library's") { lead(rate, dlsym(RTLD_DEFAULT, "program_invocation_name"), 0); return; }
  CASE("null") { lead(rate, NULL, 0); return; }
  CASE("nowhere") { lead(rate, (void *)0xdead0000, WORD); return; }
  CASE("the last byte") { lead(rate, (void *)(UINTPTR_MAX - 7), 0); return; }
  CASE("no memory") {
    void *none = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    lead(rate, none, WORD);
    return;
  }
  fail("there is no case \"%s\"", what);
}

static void check(const char *spec)
{
  const char *text = NULL;
  int status = ratelimit(&text, 1, &spec);
  if (status || strcmp(text, "no")) fail("status %d, %s", status, text);
  look();
}

int main(int argc, char **argv)
{
  if (argc != 4) fail("usage: tables LIBRARY SPOOL CASE");
  /* In these cases words may be written and restored: they are checked at the end only. */
  _Bool look_always = strcmp(argv[3], "zeros") && strcmp(argv[3], "one word");
  _Bool may_set = !strcmp(argv[3], "right") || EXPORTED == 1;
  spool_directory = argv[2];
  entry *copy = malloc(variables_count * sizeof *copy);
  memcpy(copy, variables, variables_count * sizeof *copy);
  live = copy;
  for (size_t n = 0; n < live_entries && !may_set; n++)
    if (copy[n].type == TEXT) watch(copy[n].value);
  for (int n = 0; n < 3; n++) watch(&taken[n]), watch(&zeros[n]), watch(&numbers[2 * n]);
  spoil(argv[3]);
  if (look_always) before_expanding = look;
  load(argv[1]);
  check("100 / 1h / per_cmd / strict / k");
  check("200 / 1h / per_cmd / strict / k");
  const char *field = "rate", *text = NULL;
  if (ratelimit_info(&text, 1, &field) || strcmp(text, "2.0")) fail("ratelimit_info returns %s", text);
  printf("set: %d\n", sender_rate && !strcmp(sender_rate, "2.0"));
}
