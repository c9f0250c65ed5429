// A hooked launch as the executor remembers it (shim/executor/launch_memo.hpp): its kernel, how it is launched, and the words of its
// parameters in which addresses may be.
//
// Two launches of a kernel name the same as long as the words that lead anywhere are the same: others may differ, for they are
// sizes, or what was never set. What a word that leads into memory which is not managed says depends on more than the word, and so
// does what is in a tensor map: such launches are not remembered.
#pragma once

#include "interpose/handlers.hpp"
#include "shim/executor/launch_memo.hpp"
#include "shim/pager/pager.hpp"

namespace udnnmem::preload {

class WorkWords final : public executor::LaunchWords {
  public:
    // Keeps the references.
    WorkWords(const pager::Pager& pager, const interpose::Work& work) : pager_(pager), work_(work) {}
    std::size_t count() const override;
    bool copy(std::uint64_t* to) const override;
    bool match(const std::uint64_t* words) const override;

  private:
    const pager::Pager& pager_;
    const interpose::Work& work_;
};

}  // namespace udnnmem::preload
