// Tags of test cases that sanitised builds leave out: a case tagged "[.]" is hidden.
#pragma once

// Faults on purpose, again and again: TSan knows no jump out of a signal handler.
#ifdef __SANITIZE_THREAD__
#define NOT_UNDER_TSAN "[.]"
#else
#define NOT_UNDER_TSAN ""
#endif

// What ASan, too, takes for a fault of the program.
#ifdef __SANITIZE_ADDRESS__
#define NOT_SANITISED "[.]"
#else
#define NOT_SANITISED NOT_UNDER_TSAN
#endif
