// A progress bar for what may take long: on a terminal only, and only once it has taken a second.
#pragma once

#include <chrono>
#include <string>

namespace udnnmem::cli {

class Progress {
public:
    explicit Progress(std::string what);
    ~Progress();  // wipes the bar
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;

    // Part done, 0 to 1. To be called as often as is convenient; draws ten times a second at most.
    void show(double part);

private:
    std::string what_;
    bool terminal_;
    bool drawn_ = false;
    std::chrono::steady_clock::time_point start_, last_;
};

}  // namespace udnnmem::cli
