/* Process state that the library must not change: working directory, signals,
 * environment, locale and others. */

#ifndef STATE_H
#define STATE_H

void remember_state(void);

/* Ends the program with an error if something has changed. */
void check_state(void);

/* Bytes of anonymous memory in use. */
long anonymous_memory(void);

#endif
