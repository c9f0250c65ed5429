// Modelled time (SOFTGPU_TIME=model): ops last what a roofline over what they did says, copies what the bandwidth says, on
// a virtual clock that no machine slows down.
//
// An engine runs an op for real where it begins and then holds it until the clock has reached its end. The clock moves,
// to the earliest end that is held, once the process is at rest: no engine runs anything, every thread of the program
// sleeps, none has called the driver for a while (polling does not count), and those that poll have done so once more. So host
// work takes no virtual time, save for calls that are said to (spend()), and a thread that sleeps between polls has seen what ended
// before anything else ends.
#pragma once

#include "tests/softgpu/driver/core.hpp"

namespace softgpu {

// Whether time is modelled; the rest may be called only then.
bool modelled();
std::int64_t virtual_now();                     // ns since the start
void clock_called(const char* name);            // the program called the driver
void engine_thread();                           // the calling thread is the driver's: its state does not matter
void engine_runs();                             // the clock stands still ...
void engine_rests();                            // ... unless another one does this
// Rests, and runs again once the clock has reached `end`.
void hold_until(std::int64_t end);
// A call of the program's takes so long; nothing if time is not modelled.
void spend(std::int64_t ns);

}  // namespace softgpu
