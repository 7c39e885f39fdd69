/* The variables of the minimal Exim. Those that stock builds export are visible to
 * the library by name; the others are only in the table. */

#ifndef SMALL_EXIM_VARIABLES_H
#define SMALL_EXIM_VARIABLES_H

#include "exim.h"

#ifndef EXPORTED
#define EXPORTED 0
#endif
#if EXPORTED > 1 /* other symbols have these names */
#define sender_rate own_sender_rate
#define sender_rate_limit own_sender_rate_limit
#define sender_rate_period own_sender_rate_period
#endif

extern const char *message_id, *received_protocol, *sender_address, *sender_host_address;
extern int recipients_count;
extern unsigned debug_selector;
extern _Bool smtp_input, smtp_batched_input, host_checking;

/* A message, as in local_scan.h. */
typedef struct header_line {
  struct header_line *next;
  int type, length;
  char *text;
} header_line;
typedef struct {
  const char *address;
  int parent;
  const char *errors_to, *original;
  int dsn_flags;
} recipient_item;
extern header_line *header_list;
extern recipient_item *recipients_list;

extern const char *deliver_domain, *deliver_localpart, *router_name, *transport_name;
extern const char *smtp_command, *smtp_notquit_reason, *spool_directory;
extern const char *sender_rate, *sender_rate_limit, *sender_rate_period;
extern int message_size, rcpt_count, message_linecount;
extern char command_buffer[64];

/* The table that the library finds, sorted by name. */
extern entry variables[];
extern const size_t variables_count;

/* Unset what Exim unsets at these events. */
void end_of_command(void);
void end_of_message(void);

#endif
