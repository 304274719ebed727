// Where this build has put the fake model's plug-in library, for model_lib=. Included by force in
// every test and benchmark; the value is in a generated source, so that the tests' objects are the
// same in every build directory and the compiler cache serves all of them.
#pragma once

extern const char* const kFakeModelPath;
#define MLC_NATIVE_FAKE_MODEL_PATH kFakeModelPath
