// What tests ask of the fake cuBLASLt (fake_cublas_lt.cc).
#pragma once

extern "C" {

int fake_cublas_lt_num_products();            // since the process started
int fake_cublas_lt_num_objects();             // descriptions and handles that are not destroyed
void fake_cublas_lt_refuse(int num_lookups);  // from then on; below zero: none
}
