// Bytes booked at the ops of two iterations, a ring. Bookings run over thousands of ops, so whole blocks of them
// are booked by one addition and looked at by their largest.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace udnnmem::policy {

class Booking {
public:
    explicit Booking(std::size_t ops) : at_(2 * ops, 0), rest_((2 * ops + block - 1) / block, 0), most_(rest_.size(), 0) {}

    // Ops are counted over iterations. Spans are of less than two iterations.
    void add(std::int64_t from, std::int64_t to, std::int64_t bytes) {
        walk(from, to, [&](std::size_t first, std::size_t last, bool whole) {
            const std::size_t b = first / block;
            if (whole) {
                rest_[b] += bytes;
                most_[b] += bytes;
                return false;
            }
            for (std::size_t i = first; i < last; ++i) at_[i] += bytes;
            look_again(b);
            return false;
        });
    }

    void set(std::int64_t op, std::int64_t bytes) {
        const std::size_t i = static_cast<std::size_t>(op) % at_.size();
        at_[i] = bytes - rest_[i / block];
        look_again(i / block);
    }

    // The first op of [from, to) with more than `limit` booked; -1: none.
    std::int64_t above(std::int64_t from, std::int64_t to, std::int64_t limit) const {
        std::int64_t found = -1, passed = from;
        walk(from, to, [&](std::size_t first, std::size_t last, bool) {
            const std::size_t b = first / block;
            if (most_[b] > limit)
                for (std::size_t i = first; i < last && found < 0; ++i)
                    if (at_[i] + rest_[b] > limit) found = passed + static_cast<std::int64_t>(i - first);
            passed += static_cast<std::int64_t>(last - first);
            return found >= 0;
        });
        return found;
    }

private:
    static constexpr std::size_t block = 128;

    // The span in pieces, none across a block's end, until `piece` says that it is enough.
    template <class Piece>
    void walk(std::int64_t from, std::int64_t to, Piece piece) const {
        if (to <= from) return;
        std::size_t first = static_cast<std::size_t>(from) % at_.size();
        for (auto left = static_cast<std::size_t>(to - from); left > 0;) {
            const std::size_t end = std::min(first / block * block + block, at_.size()), last = std::min(end, first + left);
            if (piece(first, last, first % block == 0 && last == end)) return;
            left -= last - first;
            first = last == at_.size() ? 0 : last;
        }
    }

    void look_again(std::size_t b) {
        const auto begin = at_.begin() + static_cast<std::ptrdiff_t>(b * block), end = at_.begin() + static_cast<std::ptrdiff_t>(std::min((b + 1) * block, at_.size()));
        most_[b] = rest_[b] + *std::max_element(begin, end);
    }

    std::vector<std::int64_t> at_;            // booked at an op: this
    std::vector<std::int64_t> rest_, most_;   // and what is booked for its whole block; the block's largest sum
};

}  // namespace udnnmem::policy
