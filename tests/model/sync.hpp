// Stands in for the standard library's atomics, locks, conditions and threads while the pager's own sources are compiled
// into the checker (pager_under_model.cpp): every operation of theirs becomes a point where another thread may go on.
// The code between two points is the pager's, untouched.
//
// Everything of the standard library that the pager includes is included here first: the macros at the end rename only what
// follows. Relaxed operations are no points, nor are locks that were not made known: they run together with what is before
// them (README.md says what that leaves out).
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <iterator>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include <unistd.h>

namespace model {

// Another thread may go on here, and the device on the streams (a bit each, by the number of the device's choice) that what
// follows has to do with ...
void point(std::uint64_t streams = ~std::uint64_t{0});
// ... another thread alone, where the object is one that others use too.
void point(const void* object, bool changes);
// What the calling thread did or learned belongs to its state.
void note(std::uint64_t what);
// The same name in every execution, for objects made known; one for all others (which of them it is follows from what
// the thread has done before).
std::uint64_t name_of(const void* object);

void lock(void* mutex);
bool try_lock(void* mutex);
void unlock(void* mutex);
// With `mutex` held; returns with it held. `timed`: may return when something has changed since.
void wait(void* condition, void* mutex, bool timed);
void notify(void* condition, bool all);
int start_thread(std::function<void()> body);
void join_thread(int id);

template <class T>
void noted(const void* object, T value) {
    std::uint64_t bits = 0;
    if constexpr (std::is_pointer_v<T>) bits = name_of(value);
    else bits = static_cast<std::uint64_t>(value);
    note(name_of(object) * 31 + bits);
}

}  // namespace model

namespace std {

template <class T>
class model_atomic {
    T value_{};
    // Pointers are set once, or under a lock.
    void before(memory_order order, bool changes) const {
        if (order != memory_order_relaxed && !is_pointer_v<T>) model::point(this, changes);
    }
    template <class Change>
    T change(memory_order order, Change with) {
        before(order, true);
        model::noted(this, value_);
        return std::exchange(value_, static_cast<T>(with(value_)));
    }

  public:
    constexpr model_atomic() noexcept = default;
    constexpr model_atomic(T value) noexcept : value_(value) {}
    model_atomic(const model_atomic&) = delete;
    T load(memory_order order = memory_order_seq_cst) const {
        before(order, false);
        model::noted(this, value_);
        return value_;
    }
    void store(T value, memory_order order = memory_order_seq_cst) {
        before(order, true);
        model::noted(this, value);
        value_ = value;
    }
    T exchange(T value, memory_order order = memory_order_seq_cst) {
        before(order, true);
        model::noted(this, value_);
        return std::exchange(value_, value);
    }
    bool compare_exchange_strong(T& expected, T desired, memory_order order = memory_order_seq_cst) {
        before(order, true);
        model::noted(this, value_);
        if (value_ == expected) return value_ = desired, true;
        expected = value_;
        return false;
    }
    bool compare_exchange_weak(T& expected, T desired, memory_order order = memory_order_seq_cst) {
        return compare_exchange_strong(expected, desired, order);
    }
    T fetch_add(T n, memory_order order = memory_order_seq_cst) {
        return change(order, [n](T value) { return value + n; });
    }
    T fetch_sub(T n, memory_order order = memory_order_seq_cst) {
        return change(order, [n](T value) { return value - n; });
    }
    T fetch_or(T bits, memory_order order = memory_order_seq_cst) {
        return change(order, [bits](T value) { return value | bits; });
    }
    operator T() const { return load(); }
    T operator=(T value) {
        store(value);
        return value;
    }
    T peek() const { return value_; }  // the checker's own look
};

class model_mutex {
  public:
    void lock() { model::lock(this); }
    bool try_lock() { return model::try_lock(this); }
    void unlock() { model::unlock(this); }
};

class model_condition_variable {
  public:
    using Lock = unique_lock<model_mutex>;
    void notify_one() { model::notify(this, false); }
    void notify_all() { model::notify(this, true); }
    void wait(Lock& lock) { model::wait(this, lock.mutex(), false); }
    template <class Holds>
    void wait(Lock& lock, Holds holds) {
        while (!holds()) wait(lock);
    }
    template <class Duration>
    void wait_for(Lock& lock, Duration) {
        model::wait(this, lock.mutex(), true);
    }
    template <class Duration, class Holds>
    bool wait_for(Lock& lock, Duration, Holds holds) {
        if (!holds()) model::wait(this, lock.mutex(), true);
        return holds();
    }
};

class model_thread {
    int id_ = -1;

  public:
    model_thread() = default;
    template <class Body>
    explicit model_thread(Body body) : id_(model::start_thread(std::move(body))) {}
    model_thread& operator=(model_thread&& other) {
        id_ = std::exchange(other.id_, -1);
        return *this;
    }
    bool joinable() const { return id_ >= 0; }
    void join() { model::join_thread(std::exchange(id_, -1)); }
};

}  // namespace std

#define atomic model_atomic
#define mutex model_mutex
#define condition_variable model_condition_variable
#define thread model_thread
