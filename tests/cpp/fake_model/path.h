// Where this build has put the fake model's plug-in library, for model_lib=. The value is in a
// generated source, so that the tests' objects are the same in every build directory and the
// compiler cache serves all of them.
#pragma once

extern const char* const kFakeModelPath;
