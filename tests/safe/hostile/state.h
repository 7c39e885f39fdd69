/* What belongs to Exim and the library must leave alone: working directory,
 * signals, environment, locale and the like. */

#ifndef STATE_H
#define STATE_H

void remember_state(void);

/* Ends the program where something has changed. */
void check_state(void);

/* Bytes of memory with no file behind them. */
long anonymous_memory(void);

#endif
