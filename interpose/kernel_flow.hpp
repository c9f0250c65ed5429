// Where the values of a kernel's PTX body come from: which words of the parameter buffer reach which registers, and what was loaded
// through which of them does, in no order (what may be is). A word that was loaded from memory is no address of its own: tables of
// addresses are known to whoever asks, but for those in variables of the module.
//
// One body at a time, then thrown away; views into the text, which has to outlive it. Not thread-safe.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "interpose/kernel_code.hpp"

namespace udnnmem::interpose {

inline bool starts_with(std::string_view text, std::string_view with) { return text.substr(0, with.size()) == with; }
inline bool contains(std::string_view text, std::string_view what) { return text.find(what) != std::string_view::npos; }

// Some of the 8-byte words of a parameter buffer, by their offsets (multiples of 8): a bit each, for a long kernel joins them at each of
// its instructions.
class ParameterWords {
  public:
    void insert(std::uint32_t offset);
    bool add(const ParameterWords& other);   // whether it got more
    bool empty() const { return bits_.empty(); }
    ParameterWords shifted() const;          // each by one word
    template <class Use>
    void each(Use use) const {
        for (std::size_t i = 0; i < bits_.size(); ++i)
            for (std::uint64_t left = bits_[i]; left; left &= left - 1) use(static_cast<std::uint32_t>(i * 64 + static_cast<unsigned>(std::countr_zero(left))) * 8);
    }
    std::set<std::uint32_t> offsets() const;

  private:
    std::vector<std::uint64_t> bits_;   // the last one is not 0
};

class KernelFlow {
  public:
    // One instruction: `words` are its opcode and operands, brackets and commas among them; `guard`: its predicate, or "".
    void add(const std::vector<std::string_view>& words, std::string_view guard) { code_.push_back({words, guard}); }
    // Of the next instruction. What inline assembly names alike in several scopes may be any of them.
    void label(std::string_view name) { labels_.emplace(name, code_.size()); }
    // The address of a variable that may hold addresses.
    void variable(std::string_view name) { registers_[name].reaches_variable = true; }

    // `offset_of`: of a parameter by its name; -1: none of that name. False: not all was understood.
    using OffsetOf = std::function<std::int64_t(std::string_view)>;
    bool solve(const OffsetOf& offset_of, KernelCode& out);

    // After solve(), as KernelCode::hazard: it waits for others, or gives what depends on whose turn it was.
    const char* hazard() const { return hazard_; }

  private:
    using Words = ParameterWords;
    struct Value {
        Words leads, holds;   // words of the parameter buffer: that reach it, and what was loaded through which does
        bool reaches_variable = false, from_variable = false;   // a variable's address reaches it; a word of 64 bits that was loaded from one does
        bool by_turn = false;                                   // what an atomic operation found does
        void add(const Value& other);
    };
    struct Instruction {
        std::vector<std::string_view> words;
        std::string_view guard;
        bool turns = false;   // it goes elsewhere, or ends, by what was loaded
        bool waits = false;   // ... by what an atomic operation found
        Words stores;         // what leads where it stores to
    };
    void step(Instruction& instruction, const OffsetOf& offset_of, KernelCode& out);
    void join(Words& to, const Words& from);
    void raise(bool& to, bool from);
    std::vector<std::size_t> next(std::size_t at) const;
    std::vector<std::size_t> joins(const std::vector<std::vector<std::size_t>>& after) const;
    void find_skipped();

    std::vector<Instruction> code_;
    std::multimap<std::string_view, std::size_t> labels_;
    std::unordered_map<std::string_view, Value> registers_;
    Words writes_, steers_, scattered_;        // as in KernelCode
    Value near_;                               // stored to memory that the kernel alone has
    std::map<std::uint32_t, Words> stored_through_;   // by the offset of the word that leads there
    Value stored_;                             // ... anywhere, as far as variables go
    bool changed_ = false;
    const char* hazard_ = nullptr;
};

}  // namespace udnnmem::interpose
