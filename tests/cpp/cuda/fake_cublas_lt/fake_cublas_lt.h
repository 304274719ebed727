// Counters and hooks of the fake cuBLASLt (fake_cublas_lt.cc). One thread.
#pragma once

extern "C" {

int fake_cublas_lt_num_products();            // since the process started
int fake_cublas_lt_num_objects();             // live descriptions and handles
void fake_cublas_lt_refuse(int num_lookups);  // refuses lookups after that many; negative: none
}
