// Every schedule of the threads of a model, one step at a time: of all threads one runs, and at each point the explorer
// says who goes on. States are kept by their hash and entered once; from where there is a choice the whole model is put back
// (image.hpp) and another one made.
//
// A point is an access to something that two threads use and one of them changes (by_chance and all others run on): which
// those are is found by exploring until no more turn up. Accesses to the rest can be in any order with what other threads
// do, so that nothing is missed.
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
    virtual bool worth_waking() = 0;                         // a thread of the program's whose wait has a time: whether it would find something to do
    virtual std::uint64_t name_of(const void* object) = 0;   // of what was made under way; 0: unknown
};

struct Limits {
    std::uint64_t walks = 0;           // not 0: schedules drawn at random instead, so many of them, from `seed`
    std::uint64_t seed = 1;
    std::uint64_t states = 0;          // 0: any number
    std::uint64_t audit = 0;           // one in so many states that are met again is entered again, to see the same follow
    std::size_t steps = 100'000;       // of a walk: beyond it nothing is ever going to end
};

struct Outcome {
    std::uint64_t states = 0, steps = 0, ends = 0, walks = 0, audited = 0;
    std::size_t deepest = 0;
    int rounds = 0, shared = 0;        // explorations until no more objects turned out to be shared; how many are
    bool complete = false;             // every reachable state was seen, and the end can be reached from each
    std::string wrong;                 // the first violation, with the schedule that leads to it
};

// Explores `body`, which is run as thread 0 and may start more, over a world made by `make`.
Outcome explore(const Limits&, const std::function<std::unique_ptr<World>()>& make, const std::function<void(World&)>& body);

// For the body and the world, during an execution.
void label(std::uint64_t where);       // what the calling thread has seen is nothing to it from here on
int spawn(std::function<void()> body);
void join(int id);
void violation(const std::string& what);
// One way only through `part`: whoever can goes on, the device first, no choice is explored.
void quietly(const std::function<void()>& part);
std::int64_t clock_ns();
void know(const void* object, std::size_t bytes, std::uint64_t name);
void know_lock(const void* mutex);     // taking it is a point
bool locked(const void* mutex);

}  // namespace model
