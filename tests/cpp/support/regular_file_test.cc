#include "support/regular_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "support/config_fields.h"
#include "support/error.h"
#include "testing/temp_folder.h"

namespace mlc_native {
namespace {

using ::testing::HasSubstr;

class RegularFileTest : public ::testing::Test {
 protected:
  // The LoadError of opening or reading a file, without the path it begins with.
  std::string Error(const std::string& path, uint64_t max_bytes = 100) {
    try {
      RegularFile(path).ReadAll(max_bytes);
    } catch (const LoadError& error) {
      const std::string message = error.what();
      EXPECT_TRUE(message.starts_with(path + ": ")) << message;
      return message.substr(path.size() + 2);
    }
    return "";
  }
  const testing::TempFolder folder_;
};

TEST_F(RegularFileTest, ReadsAllAndParts) {
  folder_.Write("x", "0123456789");
  const RegularFile file(folder_.file("x"));
  EXPECT_EQ(file.ReadAll(10), "0123456789");
  std::string part(3, '?');
  file.Read(4, std::as_writable_bytes(std::span(part)));
  EXPECT_EQ(part, "456");
  EXPECT_EQ(Error(folder_.file("x"), 9), "has 10 bytes, allowed are 9");
}

// None of them may block: a FIFO without a writer, a device without an end.
TEST_F(RegularFileTest, OnlyRegularFilesAreOpened) {
  EXPECT_EQ(Error(folder_.file("absent")), "cannot be opened: No such file or directory");
  EXPECT_EQ(Error(folder_.path()), "is a folder, must be a regular file");
  EXPECT_EQ(Error("/dev/zero"), "is a device, must be a regular file");
  ASSERT_EQ(mkfifo(folder_.file("fifo").c_str(), 0600), 0);
  EXPECT_EQ(Error(folder_.file("fifo")), "is a FIFO, must be a regular file");
  std::filesystem::create_symlink("fifo", folder_.file("link"));
  EXPECT_EQ(Error(folder_.file("link")), "is a FIFO, must be a regular file");

  const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_GE(listener, 0);
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  const std::string path = folder_.file("s");
  ASSERT_LT(path.size(), sizeof address.sun_path);
  path.copy(address.sun_path, path.size());
  ASSERT_EQ(bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(Error(path), "is a socket, must be a regular file");
  close(listener);
}

TEST_F(RegularFileTest, AFileThatIsCutShortIsAnError) {
  folder_.Write("x", std::string(10, 'x'));
  const RegularFile file(folder_.file("x"));
  file.RequireStamp(file.stamp());
  std::filesystem::resize_file(folder_.file("x"), 4);
  try {
    file.ReadAll(10);
    ADD_FAILURE() << "read";
  } catch (const LoadError& error) {
    EXPECT_THAT(error.what(), HasSubstr("x: ends at byte 4, it had 10 bytes"));
  }
  EXPECT_THROW(file.RequireStamp(file.stamp()), LoadError);
}

TEST_F(RegularFileTest, JsonFilesAreLimitedInSizeDepthAndValues) {
  const auto error_of = [&](const std::string& json) {
    folder_.Write("c.json", json);
    try {
      ConfigFields::ReadFile(folder_.file("c.json"));
    } catch (const LoadError& error) {
      EXPECT_EQ(error.field(), "c.json");
      return std::string(error.what()).substr(folder_.file("c.json").size() + 2);
    }
    return std::string();
  };
  const auto nested = [](size_t depth) {
    return R"({"a":)" + std::string(depth - 1, '[') + std::string(depth - 1, ']') + "}";
  };
  EXPECT_EQ(error_of(nested(ConfigFields::kMaxFileDepth)), "");
  EXPECT_EQ(error_of(nested(ConfigFields::kMaxFileDepth + 1)),
            "is nested more than 128 levels deep");
  EXPECT_EQ(error_of(nested(1'000'000)), "is nested more than 128 levels deep");
  std::string many = "0";
  for (size_t i = 0; i < ConfigFields::kMaxFileValues; ++i) many += ",0";
  EXPECT_EQ(error_of(R"({"a":[)" + many + "]}"),
            "has more than 4000000 values, which is the limit");

  folder_.Write("c.json", "{}");
  std::filesystem::resize_file(folder_.file("c.json"), ConfigFields::kMaxFileBytes + 1);
  EXPECT_THROW(ConfigFields::ReadFile(folder_.file("c.json")), LoadError);
}

}  // namespace
}  // namespace mlc_native
