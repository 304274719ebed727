// The start of a program of a release. The start files of glibc 2.34 and later leave the
// constructors of a program to libc, which called those of libraries alone before. Here the program
// names a function that calls them, as older start files did, and as every libc still does for such
// programs. Linked with -Wl,--wrap=__libc_start_main: see make_baseline.py.
#pragma GCC visibility push(hidden)

typedef void (*Constructor)(int count, char** arguments, char** environment);
extern const Constructor __init_array_start[], __init_array_end[];  // by the linker
void _init(void);                                                   // by the start files

static void CallConstructors(int count, char** arguments, char** environment) {
  _init();
  for (const Constructor* each = __init_array_start; each != __init_array_end; ++each) {
    (*each)(count, arguments, environment);
  }
}

#pragma GCC visibility push(default)
int __real___libc_start_main(int (*main)(int, char**, char**), int count, char** arguments,
                             Constructor constructors, void (*finish)(void),
                             void (*finish_loader)(void), void* stack_end);
#pragma GCC visibility pop

int __wrap___libc_start_main(int (*main)(int, char**, char**), int count, char** arguments,
                             Constructor constructors, void (*finish)(void),
                             void (*finish_loader)(void), void* stack_end) {
  (void)constructors;
  return __real___libc_start_main(main, count, arguments, CallConstructors, finish, finish_loader,
                                  stack_end);
}
