# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=True
"""TextEvent writes an event of a stream whose JSON is the same every time except for one text.

The bytes around the text are made once. An event is one allocation: its size is counted first, then
the text is escaped into it. A TextEvent is immutable; any thread may use it.
"""

from json.encoder import encode_basestring

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.string cimport memcpy

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL

cdef char* _HEX = "0123456789abcdef"
# What follows the backslash for a byte of UTF-8; 0: the byte stands for itself.
cdef char[256] _ESCAPES


cdef _fill_escapes():
    cdef int byte
    for byte in range(256):
        _ESCAPES[byte] = c"u" if byte < 32 else 0
    for byte, letter in zip(b'"\\\n\r\t\f\b', b'"\\nrtfb'):
        _ESCAPES[byte] = letter


_fill_escapes()


cdef Py_ssize_t _escaped_size(const unsigned char* text, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t i, escaped = size
    for i in range(size):
        if _ESCAPES[text[i]]:
            escaped += 5 if _ESCAPES[text[i]] == c"u" else 1
    return escaped


cdef char* _escape(char* out, const unsigned char* text, Py_ssize_t size) noexcept nogil:
    """Writes the text and returns the end of what was written."""
    cdef Py_ssize_t i
    cdef char escape
    for i in range(size):
        escape = _ESCAPES[text[i]]
        if escape == 0:
            out[0] = <char>text[i]
            out += 1
            continue
        out[0] = c"\\"
        out[1] = escape
        out += 2
        if escape == c"u":
            out[0] = out[1] = c"0"
            out[2] = _HEX[text[i] >> 4]
            out[3] = _HEX[text[i] & 15]
            out += 4
    return out


cdef class TextEvent:
    """``parts`` are the bytes in front of, between and behind the places of the text, as a JSON
    string without its quotation marks: the parts have them.
    """

    cdef tuple _parts
    cdef Py_ssize_t _size

    def __cinit__(self, *parts):
        cdef bytes part
        self._parts = parts
        self._size = 0
        for part in parts:
            self._size += len(part)

    def write(self, str text):
        """The event with a text, the same bytes as by ``json.dumps(ensure_ascii=False)``.

        A lone surrogate, which UTF-8 cannot have, becomes its escape.
        """
        cdef const char* utf8
        cdef Py_ssize_t size
        try:
            utf8 = PyUnicode_AsUTF8AndSize(text, &size)
        except UnicodeEncodeError:
            quoted = encode_basestring(text).encode("utf-8", "backslashreplace")
            return quoted[1:len(quoted) - 1].join(self._parts)
        cdef const unsigned char* source = <const unsigned char*>utf8
        cdef Py_ssize_t places = len(self._parts) - 1
        cdef Py_ssize_t escaped = _escaped_size(source, size)
        cdef bytes event = PyBytes_FromStringAndSize(NULL, self._size + places * escaped)
        cdef char* out = event
        cdef Py_ssize_t i
        cdef bytes part
        for i in range(places + 1):
            part = <bytes>self._parts[i]
            if i > 0:
                out = _escape(out, source, size)
            memcpy(out, <const char*>part, len(part))
            out += len(part)
        return event
