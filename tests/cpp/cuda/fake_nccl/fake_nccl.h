// Counters and hooks of the fake NCCL (fake_nccl.cc). Any thread.
#pragma once

#include <cstdint>

extern "C" {

int64_t fake_nccl_num_operations();  // of all ranks, since the process started
int fake_nccl_num_comms();           // that are neither destroyed nor aborted
void fake_nccl_refuse(int refused);  // whether communicators can be made
}
