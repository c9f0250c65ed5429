// A hooked launch as something that can be kept and run again (shim/replay/launch.hpp).
#pragma once

#include "interpose/handlers.hpp"
#include "shim/replay/launch.hpp"

namespace udnnmem::preload {

class WorkLaunch final : public replay::LaunchSource {
  public:
    // Keeps the reference.
    explicit WorkLaunch(const interpose::Work& work) : work_(work) {}
    const char* refused() const override;
    const char* tied() const override;
    bool may_write(std::uint32_t offset) const override;
    bool may_steer(std::uint32_t offset) const override;
    bool may_leave_out(std::uint32_t offset) const override;
    bool stray(std::uint32_t offset) const override;
    bool inspected() const override;
    std::uint64_t code() const override;
    bool again(const replay::Launch& launch) const override;
    bool copy(replay::Launch& out) const override;

  private:
    const interpose::Work& work_;
};

}  // namespace udnnmem::preload
