#include "shim/executor/rows.hpp"

#include <random>

namespace udnnmem::executor {

Rows make_rows(const policy::Plan& plan, std::size_t steps) {
    Rows rows;
    std::vector<std::vector<Rows::Entry>> by_step(steps);
    for (const bool at_start : {false, true})
        for (const policy::Action& a : plan.actions) {
            if ((a.op.value < 0) != at_start) continue;
            // What begins with the iteration is ordered at the end of the one before.
            const std::size_t step = at_start ? steps - 1 : static_cast<std::size_t>(a.op.value);
            if (step >= steps) continue;
            switch (a.what) {
                case policy::Do::evict: by_step[step].push_back({pager::Order::Kind::evict, a.buffer.value}); break;
                case policy::Do::clean: by_step[step].push_back({pager::Order::Kind::clean, a.buffer.value}); break;
                case policy::Do::prefetch: by_step[step].push_back({pager::Order::Kind::fetch, a.buffer.value}); break;
                case policy::Do::drop:
                case policy::Do::replay: break;  // never planned without PlannerOptions::recompute
            }
        }
    rows.begin.push_back(0);
    for (const auto& row : by_step) {
        rows.entries.insert(rows.entries.end(), row.begin(), row.end());
        rows.begin.push_back(static_cast<std::uint32_t>(rows.entries.size()));
    }
    return rows;
}

Rows distorted(const Rows& rows, std::size_t buffers, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const std::size_t steps = rows.begin.size() - 1;
    std::vector<std::vector<Rows::Entry>> by_step(steps);
    for (std::size_t k = 0; k < steps; ++k)
        for (std::uint32_t i = rows.begin[k]; i < rows.begin[k + 1]; ++i) {
            Rows::Entry entry = rows.entries[i];
            std::size_t at = k;
            switch (random() % 15) {
                case 0: entry.buffer = static_cast<std::int32_t>(random() % buffers); break;
                case 1: entry.kind = static_cast<pager::Order::Kind>(random() % 3); break;
                case 2: at = random() % steps; break;
                case 3: by_step[random() % steps].push_back(entry); break;
                case 4: continue;
                default: break;
            }
            by_step[at].push_back(entry);
        }
    Rows out = rows;
    out.entries.clear();
    out.begin.clear();
    for (const auto& row : by_step) {
        out.begin.push_back(static_cast<std::uint32_t>(out.entries.size()));
        out.entries.insert(out.entries.end(), row.begin(), row.end());
    }
    out.begin.push_back(static_cast<std::uint32_t>(out.entries.size()));
    return out;
}

}  // namespace udnnmem::executor
