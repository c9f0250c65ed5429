// The one place that names the test framework (Debian's Catch2 2.13), so that a change of version is a change here.
#pragma once
#include <catch2/catch.hpp>
