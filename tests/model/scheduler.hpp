// One execution at a time, chosen step by step: of all threads of the model one runs, and at each point the explorer says
// who goes on. Threads are real ones that hand a token round, so the pager's code runs as it is.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace model {

// Who can go on at a point: a thread (its number), or the device (`device_base` + a number of the driver's).
inline constexpr int device_base = 100;

struct World {
    virtual ~World() = default;
    virtual void device_choices(std::vector<int>& out) = 0;  // numbers of what the device can do next
    virtual void device_step(int choice) = 0;
    virtual std::uint64_t hash() = 0;                        // of all that threads share
    virtual std::string wrong() = 0;                         // what does not hold here and now; empty: nothing
    virtual std::string describe(int choice) = 0;
};

struct Limits {
    int preemptions = -1;              // switches away from a thread that could go on; -1: any number
    std::uint64_t executions = 0;      // 0: any number
    std::uint64_t seed = 0;            // not 0: schedules drawn at random instead, `executions` of them
    std::size_t steps = 20000;         // of one execution: beyond it nothing is ever going to end
};

struct Outcome {
    std::uint64_t executions = 0, states = 0, points = 0;
    bool complete = false;             // everything within the bound on preemptions was seen
    std::string wrong;                 // the first violation, with the schedule that leads to it
};

// Explores all schedules of `body`, which is run as thread 0 of each execution and may start more. `world` is made anew by
// `make` for each and goes when its threads have ended.
Outcome explore(const Limits&, const std::function<std::unique_ptr<World>()>& make, const std::function<void(World&)>& body);

// For the body and the world, during an execution.
void label(std::uint64_t where);       // the calling thread's state is no more than this from here on
int spawn(std::function<void()> body);
void join(int id);
void violation(const std::string& what);
// One way only through `part`: whoever can goes on, the device first, no choice is explored.
void quietly(const std::function<void()>& part);
std::int64_t clock_ns();
void know(const void* object, std::size_t bytes, std::uint64_t name);
bool locked(const void* mutex);

}  // namespace model
