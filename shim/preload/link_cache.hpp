// What earlier runs measured of a device's link, by device and machine: a file of some lines in $XDG_CACHE_HOME/udnnmem (or
// ~/.cache/udnnmem). It is only ever a guess: whoever reads it looks whether it still holds. Nothing throws; what cannot be read or
// written is as if it were not there.
#pragma once

#include <string>

#include "shim/pager/link_probe.hpp"

namespace udnnmem::preload {

// `card` names the device among all of the world.
pager::LinkSpeeds read_link(const std::string& card) noexcept;
void write_link(const std::string& card, const pager::LinkSpeeds& speeds) noexcept;

}  // namespace udnnmem::preload
