// A GPU for tests of one device's pager: a word of memory a granule, streams that are done at once unless they are held,
// two devices with a context each. With it a pager on that GPU, and the program's calls in one line each.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "shim/pager/pager.hpp"

namespace udnnmem::pager::test {

inline constexpr std::size_t granule = 64 << 10;

CUstream stream_of(int number);   // of the GPU that was made last

class FakeGpu {
  public:
    FakeGpu();
    ~FakeGpu();
    Driver driver();
    bool times = false;                     // events are: any two are 1 ms apart
    std::atomic<std::uint64_t> each_counts{1};   // a word that is an address is found so many times

    // Contexts are numbers: 1 and 2 of device 0, 3 of device 1. Of the calling thread:
    static void set_context(int number);
    // It waits for no legacy stream.
    void set_aside(int stream);
    // What was submitted to a held stream has not completed.
    void hold(int stream);
    void let_go(int stream);
    // The same of all streams that the pagers have made: nothing that is copied or hashed ends.
    void hold_moves(bool yes);

    // Word of what is mapped at an address now; a violation if nothing is.
    std::atomic_ref<std::uint64_t> word(CUdeviceptr at);   // an op may write while the mover's copies and hashes read, as on a device
    std::size_t bytes_out() const { return bytes_out_; }   // that copies to the host were asked for
    bool mapped(CUdeviceptr at);
    bool cpu_reaches(CUdeviceptr at);       // what is mapped there
    std::size_t times_mapped(CUdeviceptr at);
    // The memory behind an address, whatever its mapping: {0, 0} if nothing is there.
    using Place = std::pair<CUmemGenericAllocationHandle, std::size_t>;
    Place behind(CUdeviceptr at);

    // The next calls of cuMemMap into [at, at + bytes) that fail.
    void refuse_to_map(CUdeviceptr at, std::size_t bytes, int times);
    int refusals_left();
    // Waits for the stream that copies in fail, and no host memory may be freed: a copy may still read it.
    void copies_in_never_end();
    std::atomic<int> host_refusals{0};      // the next pieces of host memory for frames that are not to be had
    // So many granules of device memory are left.
    void fill_up(std::size_t granules = 0);
    std::size_t left() const { return left_; }
    std::atomic<bool> frees_wait{false};    // cuMemFreeHost waits, as for the device
    bool lands = true;                      // host frames can be mapped; set before the pager is made
    std::vector<std::string> violations();  // what no driver would put up with
    bool waits(int stream, int of);         // for an event that was recorded on that one
    std::vector<int> contexts_of_streams(); // of the streams that the pagers have made, in order

  private:
    struct Calls;
    struct Page {
        CUmemGenericAllocationHandle handle;
        std::size_t index;
        bool cpu = false;
    };
    Page* page(CUdeviceptr at);
    bool host_refused() { return host_refusals > 0 && host_refusals-- > 0; }

    std::recursive_mutex mutex_;
    std::map<CUmemGenericAllocationHandle, std::vector<std::uint64_t>> memory_;
    std::map<CUdeviceptr, Page> mapped_;
    std::map<CUdeviceptr, std::size_t> times_mapped_;
    std::map<CUevent, CUstream> pending_;   // events recorded on held streams
    std::set<CUstream> held_, aside_;
    // What is copied out was hashed before: the last hash of each frame, and what streams have waited for of each other.
    struct Point {
        CUstream stream;
        std::uint64_t number;               // of the calls on all streams
    };
    struct Hashed {
        Point when;
        std::size_t bytes = 0;
    };
    std::map<CUdeviceptr, Hashed> hashed_;
    std::map<CUevent, Point> recorded_;
    std::map<std::pair<CUstream, CUstream>, std::uint64_t> waited_;
    std::uint64_t calls_ = 0;
    std::atomic<std::size_t> bytes_out_{0};
    std::vector<std::string> violations_;
    std::vector<int> made_streams_;
    std::vector<CUstream> movers_;          // these streams
    std::vector<std::vector<std::uint64_t>> pinned_;  // our kernels'
    CUdeviceptr next_address_ = 1ull << 40, refused_ = 0;
    std::size_t left_ = 8192;               // granules of device 0
    std::set<CUmemGenericAllocationHandle> on_device_;
    std::size_t refused_bytes_ = 0;
    int refused_times_ = 0;
    CUstream unending_ = nullptr;
    std::uint64_t next_ = 1;
};

struct Limits {
    std::size_t device = 0, host = 0;   // granules; the hasher takes one of the device's
    bool lands = true;
    std::int64_t deadline_ns = 30'000'000'000;
    std::size_t small_below = 1;        // bytes
    bool times = false;                 // 1 ms between any two events
    bool always_land = false;
};

// For what must not happen meanwhile.
inline void a_while() { std::this_thread::sleep_for(std::chrono::milliseconds(30)); }

struct Paged {
    explicit Paged(Limits);
    ~Paged();

    CUdeviceptr allocate(std::size_t granules, CUmemoryPool pool = nullptr);
    Buffer* at(CUdeviceptr);
    bool pinned(CUdeviceptr);
    Residency where(CUdeviceptr at) { return this->at(at)->residency.load(); }
    // An op between enter() and leave().
    CUresult begin(Op&, int stream, const std::vector<CUdeviceptr>& named, bool everything = false);
    // A kernel that sets the word of each buffer that it names.
    CUresult launch(int stream, const std::vector<CUdeviceptr>& named, std::uint64_t value = 1);
    CUresult launch_everything(int stream);
    // A memset over all of a buffer.
    CUresult fill(int stream, CUdeviceptr at, std::uint64_t value);
    void begin_fill(Op&, int stream, CUdeviceptr at);
    // What a plan orders once the ops so far have been submitted.
    void order(Order::Kind kind, CUdeviceptr at);
    // An eviction, whose end it waits for; whether it came.
    bool out(CUdeviceptr at);
    // How many lines say that.
    std::size_t said(const std::string& text);
    // Waits, for a few seconds, until it holds.
    template <class Holds>
    static bool soon(Holds holds) {
        for (int i = 0; i < 4000; ++i, std::this_thread::sleep_for(std::chrono::milliseconds(1)))
            if (holds()) return true;
        return false;
    }

    FakeGpu gpu;
    Pager* pager;
    DevicePager* device;
    std::vector<std::string> lines;   // warnings and errors
    std::atomic<std::uint64_t> moves_begun{0};

  private:
    struct Lines;
    std::mutex lines_mutex_;
};

}  // namespace udnnmem::pager::test
