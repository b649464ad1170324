/* nvFuser that was built for PyTorch 2.10 asks for this constructor, c10::MessageLogger(char const*, int, int, bool),
 * which PyTorch 2.11 no longer has. It is only reached when nvFuser logs an error that ends the process. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

void _ZN3c1013MessageLoggerC1EPKciib(void *self, const char *file, int line, int severity, bool exit_on_fatal)
{
    (void)self;
    (void)exit_on_fatal;
    fprintf(stderr, "nvFuser: severity %d at %s:%d\n", severity, file, line);
    abort();
}
