#include "interpose/kernel_flow.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "interpose/hazards.hpp"

namespace udnnmem::interpose {
namespace {

constexpr const char* kTurns = "stores what depends on the order of its atomic operations";
constexpr std::size_t kMostSteps = 20'000'000;   // of the search for stores that are passed by; then all count as such
constexpr std::size_t kNever = SIZE_MAX;
constexpr std::uint64_t kMostParameters = 32'768;   // bytes of a parameter buffer: the driver takes up to 32,764

bool goes_elsewhere(std::string_view op) { return starts_with(op, "bra") || starts_with(op, "ret") || starts_with(op, "exit"); }

}  // namespace

void ParameterWords::insert(std::uint32_t offset) {
    const std::size_t word = offset / 8, at = word / 64;
    if (bits_.size() <= at) bits_.resize(at + 1);
    bits_[at] |= std::uint64_t(1) << word % 64;
}

bool ParameterWords::add(const ParameterWords& other) {
    std::uint64_t more = 0;
    if (bits_.size() < other.bits_.size()) bits_.resize(other.bits_.size());
    for (std::size_t i = 0; i < other.bits_.size(); ++i) {
        more |= other.bits_[i] & ~bits_[i];
        bits_[i] |= other.bits_[i];
    }
    return more != 0;
}

ParameterWords ParameterWords::shifted() const {
    ParameterWords by_one;
    each([&](std::uint32_t offset) { by_one.insert(offset + 8); });
    return by_one;
}

std::set<std::uint32_t> ParameterWords::offsets() const {
    std::set<std::uint32_t> all;
    each([&](std::uint32_t offset) { all.insert(all.end(), offset); });
    return all;
}

void KernelFlow::Value::add(const Value& other) {
    leads.add(other.leads);
    holds.add(other.holds);
    reaches_variable |= other.reaches_variable;
    from_variable |= other.from_variable;
    by_turn |= other.by_turn;
}

void KernelFlow::join(Words& to, const Words& from) { changed_ |= to.add(from); }
void KernelFlow::raise(bool& to, bool from) {
    changed_ |= from && !to;
    to |= from;
}

bool KernelFlow::solve(const OffsetOf& offset_of, KernelCode& out) {
    out.writes_known = true;
    for (changed_ = true; changed_ && out.writes_known;) {
        changed_ = false;
        for (Instruction& i : code_) step(i, offset_of, out);
    }
    if (out.writes_known) {
        find_skipped();
        out.writes = writes_.offsets(), out.steers = steers_.offsets(), out.scattered = scattered_.offsets();
    }
    for (std::size_t at = 0; at < code_.size(); ++at) {
        const std::vector<std::size_t> after = code_[at].waits ? next(at) : std::vector<std::size_t>();
        if (std::any_of(after.begin(), after.end(), [at](std::size_t n) { return n <= at; })) hazard_ = kVolatile;   // again and again until it finds what it waits for
    }
    return out.writes_known;
}

// The instructions that may come behind one; code_.size(): the kernel's end.
std::vector<std::size_t> KernelFlow::next(std::size_t at) const {
    const std::vector<std::string_view>& words = code_[at].words;
    const bool any_label = starts_with(words[0], "brx"), branch = starts_with(words[0], "bra");
    std::vector<std::size_t> all;
    if (!any_label && (!goes_elsewhere(words[0]) || !code_[at].guard.empty())) all.push_back(at + 1);
    const auto [first, last] = any_label ? std::pair(labels_.begin(), labels_.end()) : branch ? labels_.equal_range(words.back()) : std::pair(labels_.end(), labels_.end());
    for (auto label = first; label != last; ++label) all.push_back(label->second);
    if (goes_elsewhere(words[0]) && first == last) all.push_back(code_.size());   // it ends, or there is no such label
    return all;
}

// By instruction, the nearest one that every way from it to the end comes by (its immediate postdominator); kNever: no way leads to the
// end. After Cooper, Harvey and Kennedy, "A simple, fast dominance algorithm", on the graph turned round.
std::vector<std::size_t> KernelFlow::joins(const std::vector<std::vector<std::size_t>>& after) const {
    const std::size_t end = code_.size();
    std::vector<std::vector<std::size_t>> before(end + 1);
    for (std::size_t at = 0; at < end; ++at)
        for (const std::size_t n : after[at]) before[n].push_back(at);
    std::vector<std::size_t> number(end + 1, kNever), next_before(end + 1, 0), order, open{end};
    std::vector<bool> seen(end + 1, false);
    seen[end] = true;
    while (!open.empty()) {   // depth first: an instruction is numbered behind all that lead to it
        const std::size_t at = open.back();
        if (next_before[at] == before[at].size()) {
            number[at] = order.size();
            order.push_back(at);
            open.pop_back();
        } else if (const std::size_t n = before[at][next_before[at]++]; !seen[n]) {
            seen[n] = true;
            open.push_back(n);
        }
    }
    std::vector<std::size_t> join(end + 1, kNever);
    join[end] = end;
    for (bool more = true; std::exchange(more, false);)
        for (auto at = order.rbegin(); at != order.rend(); ++at) {
            if (*at == end) continue;
            std::size_t found = kNever;
            for (std::size_t n : after[*at]) {
                if (join[n] == kNever) continue;
                for (; found != kNever && n != found;)
                    if (number[n] < number[found]) n = join[n];
                    else found = join[found];
                found = n;
            }
            more |= std::exchange(join[*at], found) != found;
        }
    return join;
}

// What is stored to where memory decides whether the store is come by may be left out in part.
void KernelFlow::find_skipped() {
    if (std::none_of(code_.begin(), code_.end(), [](const Instruction& i) { return i.turns; })) return;
    const std::size_t end = code_.size();
    std::vector<std::vector<std::size_t>> after;
    for (std::size_t at = 0; at < end; ++at) after.push_back(next(at));
    const std::vector<std::size_t> join = joins(after);
    std::vector<std::size_t> sure(end + 1, kNever), reached(end + 1, kNever), open, found;   // from which branch on, as was seen last
    std::size_t steps = 0;
    for (std::size_t from = 0; from < end; ++from) {
        if (!code_[from].turns || join[from] == kNever) continue;
        for (std::size_t at = join[from]; at != end; at = join[at]) sure[at] = from;
        for (open.assign(1, from), found.clear(); !open.empty();) {
            const std::size_t at = open.back();
            open.pop_back();
            for (const std::size_t n : after[at])
                if (++steps; n != end && std::exchange(reached[n], from) != from) open.push_back(n), found.push_back(n);
        }
        for (const std::size_t at : found)
            if (sure[at] != from) scattered_.add(code_[at].stores);
        if (steps <= kMostSteps) continue;
        for (const Instruction& i : code_) scattered_.add(i.stores);
        return;
    }
}

void KernelFlow::step(Instruction& instruction, const OffsetOf& offset_of, KernelCode& out) {
    const std::vector<std::string_view>& words = instruction.words;
    const std::string_view guard = instruction.guard;
    const std::string_view op = words[0];
    if (goes_elsewhere(op) || starts_with(op, "trap")) {
        instruction.turns = goes_elsewhere(op) && !registers_[guard].holds.empty();
        instruction.waits = registers_[guard].by_turn;
        return join(steers_, registers_[guard].holds);
    }
    if (starts_with(op, "call") || starts_with(op, "cp.async.bulk") || starts_with(op, "cp.reduce") || starts_with(op, "st.async") || starts_with(op, "multimem")) {
        out.writes_known = false;
        return;
    }
    Value inside, outside;      // of the operands in brackets, the others
    std::int64_t parameter = -1;
    std::uint64_t displacement = 0;
    std::vector<std::string_view> results;
    bool bracket = false, first = true, braces = false, reaches = false;
    for (std::size_t i = 1; i < words.size(); ++i) {
        const std::string_view w = words[i];
        if (w == "[" || w == "]") bracket = w == "[", first = false, reaches = true;
        else if (w == "{" || w == "}") braces = w == "{";
        else if (w == ",") first = first && braces;
        else if (w == "+" || w == "(" || w == ")" || w == "=") continue;
        else if (bracket && w[0] >= '0' && w[0] <= '9') displacement = std::strtoull(std::string(w).c_str(), nullptr, 0);
        else if (const std::int64_t at = offset_of(w); at >= 0) {
            if (bracket && starts_with(op, "ld.param")) parameter = at;
            else out.writes_known = false;   // its address is taken
        } else if (first && !bracket) {
            results.push_back(w);
        } else {
            const Value& from = registers_[w];
            (bracket ? inside : outside).add(from);
        }
    }
    const bool atomic = starts_with(op, "atom.") || starts_with(op, "red.");
    const bool store = starts_with(op, "st.") || contains(op, ".store.");
    const bool near = contains(op, ".shared") || contains(op, ".local") || contains(op, ".param");
    if (reaches && !contains(op, ".param")) join(steers_, inside.holds);
    out.follows_variables |= reaches && inside.from_variable;
    if (starts_with(op, "brx")) {
        for (const std::string_view index : results) outside.add(registers_[index]);   // what comes first is no result
        instruction.turns = !outside.holds.empty();
        join(steers_, outside.holds);
    }
    if (store)
        for (const std::string_view w : results) outside.add(registers_[w]);   // `st [a], v`: v comes after the bracket
    if ((atomic || store) && !near) {
        join(writes_, inside.leads);
        instruction.stores = inside.leads;
        if (store && (inside.by_turn || outside.by_turn)) hazard_ = kTurns;
        if (!inside.holds.empty() || !registers_[guard].holds.empty()) join(scattered_, inside.leads);
        inside.leads.each([&](std::uint32_t at) { join(stored_through_[at], outside.holds); });
    }
    if (store && !contains(op, ".global")) join(near_.leads, outside.leads);
    if ((atomic || store) && !contains(op, ".global")) join(near_.holds, outside.holds), raise(near_.by_turn, outside.by_turn);
    if (atomic || store) raise(stored_.from_variable, outside.from_variable), raise(stored_.reaches_variable, outside.reaches_variable);
    if (store || starts_with(op, "red.")) return;
    Value value;
    if (parameter >= 0) {
        if (const std::uint64_t at = static_cast<std::uint64_t>(parameter) + displacement; at < kMostParameters) value.leads.insert(static_cast<std::uint32_t>(at));
        else out.writes_known = false;   // no parameter lies there
    } else if (reaches) {   // ld, atom, ldmatrix, wmma.load, cp.async, ...
        if ((!contains(op, ".global") && !contains(op, ".const")) || starts_with(op, "cp.async")) value = near_;
        if (!starts_with(op, "ld.") && !starts_with(op, "ldu.")) value.leads = {};
        value.by_turn |= starts_with(op, "atom.");
        value.holds.add(inside.leads);
        inside.leads.each([&](std::uint32_t at) { value.holds.add(stored_through_[at]); });
        value.holds.add(inside.holds);
        if (contains(op, "64") || contains(op, "128") || contains(op, ".v")) {   // a word that may be an address
            value.from_variable |= inside.reaches_variable || stored_.from_variable;
            value.reaches_variable |= stored_.reaches_variable;
        }
        if (starts_with(op, "cp.async")) {   // `cp.async [near], [far], n`: straight into shared memory
            join(near_.holds, value.holds);
            raise(stored_.from_variable, inside.reaches_variable);
        }
    } else {
        value = outside;
        value.add(inside);
    }
    value.holds.add(registers_[guard].holds);   // it may keep what it was
    for (std::size_t i = 0; i < results.size(); ++i) {
        join(registers_[results[i]].leads, value.leads);
        join(registers_[results[i]].holds, value.holds);
        raise(registers_[results[i]].from_variable, value.from_variable);
        raise(registers_[results[i]].reaches_variable, value.reaches_variable);
        raise(registers_[results[i]].by_turn, value.by_turn);
        if (parameter >= 0 && contains(op, ".v")) {   // a vector of words
            const Words next = value.leads.shifted();
            if (!contains(op, "32") && !contains(op, "16")) value.leads = next;
            else value.leads.add(next);
        }
    }
}

}  // namespace udnnmem::interpose
