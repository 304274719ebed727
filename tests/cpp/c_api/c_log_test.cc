// Where messages of an engine of the C API go.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "c_api/harness.h"
#include "mlc_native/mlc_native.h"

namespace mlc_native::testing {
namespace {

using ::testing::HasSubstr;

struct LogMessages {
  std::vector<std::pair<int32_t, std::string>> all;

  static void Add(void* self, int32_t level, const char* message) {
    static_cast<LogMessages*>(self)->all.emplace_back(level, message);
  }
};

// What a load writes to stderr.
std::string StderrOfLoad(const mlcn_engine_options& options) {
  const HostedEngine other;
  mlcn_engine* engine = nullptr;
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(mlcn_engine_create(other.path().c_str(), other.config(), &options, &engine, nullptr),
            MLCN_OK);
  EXPECT_EQ(mlcn_engine_destroy(engine, nullptr), MLCN_OK);
  return ::testing::internal::GetCapturedStderr();
}

TEST(CApi, MessagesGoToTheHostOrToStderrIfTheLevelAsksForThem) {
  mlcn_engine_options options = MLCN_ENGINE_OPTIONS_INIT;
  EXPECT_EQ(StderrOfLoad(options), "");
  options.log_level = MLCN_LOG_INFO;
  EXPECT_THAT(StderrOfLoad(options), HasSubstr("[mlc_native] loaded /"));
  LogMessages messages;
  options.on_log = LogMessages::Add;
  options.log_user_data = &messages;
  EXPECT_EQ(StderrOfLoad(options), "");
  ASSERT_EQ(messages.all.size(), 1u);
  EXPECT_EQ(messages.all[0].first, MLCN_LOG_INFO);
  EXPECT_THAT(messages.all[0].second, HasSubstr("loaded /"));
  for (const int32_t level : {MLCN_LOG_WARNING, MLCN_LOG_OFF}) {
    options.log_level = level;
    EXPECT_EQ(StderrOfLoad(options), "");
    EXPECT_EQ(messages.all.size(), 1u);
  }
}

TEST(CApi, OptionsOfVersion10AreUnderstood) {
  mlcn_engine_options options = MLCN_ENGINE_OPTIONS_INIT;
  options.size = offsetof(mlcn_engine_options, on_log);
  options.log_level = MLCN_LOG_INFO;  // is not read
  EXPECT_EQ(StderrOfLoad(options), "");
}

}  // namespace
}  // namespace mlc_native::testing
