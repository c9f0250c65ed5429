#include "shim/pager/link_probe.hpp"

#include <algorithm>
#include <cmath>

#include "shim/pager/pager.hpp"

namespace udnnmem::pager {
namespace {

constexpr std::size_t kLargest = std::size_t{16} << 20;
constexpr std::size_t kStep = 8;          // from one size to the next
constexpr int kSizes = 3, kTimes = 3;
constexpr double kEnough = 0.12;          // seconds of copying after which nothing more is begun
constexpr double kSame = 0.25;

class Probe {
  public:
    Probe(const Driver& driver, Backing& backing, CUstream in, CUstream out, std::int64_t patience_ns) : driver_(driver), backing_(backing), in_(in), out_(out), until_(now_ns() + patience_ns) {
        good_ = driver.cuEventElapsedTime != nullptr;
        for (CUevent& e : events_)
            if (good_ && driver.cuEventCreate(&e, CU_EVENT_DEFAULT) != CUDA_SUCCESS) e = nullptr, good_ = false;
    }
    ~Probe() {
        for (CUevent e : events_)
            if (e) insist([&] { return driver_.cuEventDestroy_v2(e); });
    }
    Probe(const Probe&) = delete;
    Probe& operator=(const Probe&) = delete;

    // Whether nothing is at work on any frame.
    bool settle() const {
        const bool in = drain(driver_, in_), out = drain(driver_, out_);
        return in && out;
    }
    bool good() const { return good_; }
    bool hurried() const { return now_ns() > until_; }
    bool over() const { return !good_ || device_seconds_ > kEnough || hurried(); }

    // Rate of one copy; 0: it failed.
    double once(bool inward, const Frame& device, const Frame& host) {
        const CUstream stream = inward ? in_ : out_;
        begin(0, stream);
        copy(inward, device, host);
        end(0, stream);
        return rate(0, device.bytes);
    }
    // The middle one of several.
    double typical(bool inward, const Frame& device, const Frame& host) {
        std::vector<double> rates;
        for (int i = 0; i < kTimes && (i == 0 || !over()); ++i)
            if (const double r = once(inward, device, host); r > 0) rates.push_back(r);
        if (rates.empty()) return 0;
        std::nth_element(rates.begin(), rates.begin() + static_cast<std::ptrdiff_t>(rates.size() / 2), rates.end());
        return rates[rates.size() / 2];
    }
    // Several copies each way, side by side.
    void both(const std::vector<Frame*>& device, const std::vector<Frame*>& host, LinkSpeeds& to) {
        begin(0, in_), begin(1, out_);
        for (int i = 0; i < kTimes; ++i) copy(true, *device[0], *host[0]), copy(false, *device[1], *host[1]);
        end(0, in_), end(1, out_);
        to.both_in = rate(0, kTimes * device[0]->bytes);
        to.both_out = rate(1, kTimes * device[1]->bytes);
    }

  private:
    void must(CUresult result) { good_ = good_ && result == CUDA_SUCCESS; }
    void begin(int pair, CUstream stream) { if (good_) must(driver_.cuEventRecord(events_[2 * pair], stream)); }
    void end(int pair, CUstream stream) { if (good_) must(driver_.cuEventRecord(events_[2 * pair + 1], stream)); }
    void copy(bool inward, const Frame& device, const Frame& host) {
        if (good_) must(inward ? backing_.copy_in(device, host, {0, 0, device.bytes}, in_) : backing_.copy_out(host, device, {0, 0, device.bytes}, out_));
    }
    double rate(int pair, std::size_t bytes) {
        float ms = 0;
        if (good_) must(driver_.cuEventSynchronize(events_[2 * pair + 1]));
        if (good_) must(driver_.cuEventElapsedTime(&ms, events_[2 * pair], events_[2 * pair + 1]));
        if (!good_ || !(ms > 0)) return 0;
        device_seconds_ += ms / 1e3;
        return static_cast<double>(bytes) / ms * 1e3;
    }

    const Driver& driver_;
    Backing& backing_;
    const CUstream in_, out_;
    const std::int64_t until_;
    CUevent events_[4] = {};
    bool good_ = false;
    double device_seconds_ = 0;
};

bool near(double a, double b) { return std::abs(a / b - 1) <= kSame; }

}  // namespace

LinkSpeeds probe_link(const Driver& driver, Backing& backing, FramePool& device, FramePool& host, CUstream in, CUstream out, const LinkSpeeds& before, std::int64_t patience_ns) {
    const std::size_t room = std::min(device.available(), host.available());
    std::size_t largest = backing.granule();
    if (8 * largest > room) return {};
    while (2 * largest <= kLargest && 16 * largest <= room) largest *= 2;
    const std::size_t device_made = device.made(), host_made = host.made();
    Probe probe(driver, backing, in, out, patience_ns);
    // Adds what copies of that size reach. False: nothing more is to be tried.
    const auto measure = [&](std::size_t size, bool both, LinkSpeeds& to) {
        std::vector<Frame*> there, here;   // two a side, so that both ways at once do not meet in one
        for (int k = 0; k < 2; ++k) device.take(size, there), host.take(size, here);
        bool measured = probe.good() && there.size() == 2 && here.size() == 2 && driver.cuMemsetD8Async(there[1]->alias, 0, size, out) == CUDA_SUCCESS;
        if (measured) {
            probe.once(true, *there[0], *here[0]), probe.once(false, *there[1], *here[1]);  // the first ones are slow
            const LinkSpeeds::Size rates{size, probe.typical(true, *there[0], *here[0]), probe.typical(false, *there[1], *here[1])};
            measured = rates.in > 0 && rates.out > 0;
            if (measured) to.in = rates.in, to.out = rates.out, to.by_size.push_back(rates);
            if (measured && both) probe.both(there, here, to);
        }
        const bool settled = probe.settle();  // frames change hands
        settled ? device.give_back(there) : device.write_off(there);
        settled ? host.give_back(here) : host.write_off(here);
        return settled && measured && !probe.over();
    };
    LinkSpeeds now, speeds;
    if (before.known()) measure(largest, false, now);
    if (now.known() && near(now.in, before.in) && near(now.out, before.out)) {
        speeds = before;
    } else {
        std::size_t size = largest;
        for (int i = 1; i < kSizes && size / kStep >= backing.granule(); ++i) size /= kStep;
        while (measure(size, true, speeds) && size < largest) size *= kStep;
        speeds.hurried = size < largest && probe.hurried();
    }
    device.trim(device_made);
    host.trim(host_made);
    device.forget_peak();
    host.forget_peak();
    return speeds;
}

}  // namespace udnnmem::pager
