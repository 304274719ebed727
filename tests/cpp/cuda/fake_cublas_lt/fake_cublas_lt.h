// Counters and hooks of the fake cuBLASLt (fake_cublas_lt.cc). One thread.
#pragma once

extern "C" {

int fake_cublas_lt_num_products();            // since the process started
int fake_cublas_lt_num_objects();             // live descriptions and handles
void fake_cublas_lt_refuse(int num_lookups);  // refuses lookups after that many; negative: none
// How many algorithms a lookup finds; at first 1. Number 0 is slow if there are others, number 1
// has other bits.
void fake_cublas_lt_suggest(int num_algorithms);
int fake_cublas_lt_num_products_of(int algorithm);  // since the process started
}
