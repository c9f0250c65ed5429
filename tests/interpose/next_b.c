// The second definition of `answer`; built with OTHER, the one that a library finds on its own search path.
#ifdef OTHER
__attribute__((visibility("default"))) int answer(void) { return 3; }
#else
__attribute__((visibility("default"))) int answer(void) { return 2; }
#endif
