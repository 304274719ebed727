"""What images of a request may be, and how much of them is kept."""

MAX_IMAGE_BYTES = 20 << 20  # of an encoded image
MAX_IMAGE_PIXELS = 40_000_000
MAX_ASPECT_RATIO = 100  # processors that enlarge the shorter edge would make a strip huge
MAX_IMAGES = 16  # of a request
MAX_JPEG_SCANS = 100  # each goes through all pixels; encoders write about 10
READS_PER_KIB = 2  # of a file, beyond MIN_READS: pieces of a file are looked at one at a time
MIN_READS = 4096
CACHE_BYTES = 256 << 20  # of rows of recent images, per model

# As Pillow names them. Of a GIF and of other moving images, the first frame counts.
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
