// Program mlcn prints an answer of a model as it is generated.
//
//	export CGO_CFLAGS="$(pkg-config --cflags mlc_native_c)" CGO_LDFLAGS="$(pkg-config --libs mlc_native_c)"
//	go run . path/to/model "Who are you?"
//
// It polls on one goroutine, so no C thread calls into Go.
package main

/*
#include <mlc_native/mlc_native.h>
#include <stdlib.h>
*/
import "C"

import (
	"encoding/json"
	"fmt"
	"os"
	"unsafe"
)

// Error is what the library reports.
type Error struct {
	Code           int
	Field, Message string
}

func (e *Error) Error() string { return e.Field + ": " + e.Message }

// take turns an error object of the library into an Error, and frees it.
func take(e *C.mlcn_error) error {
	defer C.mlcn_error_release(e)
	return &Error{
		int(C.mlcn_error_code(e)), C.GoString(C.mlcn_error_field(e)), C.GoString(C.mlcn_error_message(e)),
	}
}

// Engine is an engine with a model. Close ends it.
type Engine struct{ handle *C.mlcn_engine }

// NewEngine loads a model folder or a GGUF file.
func NewEngine(model string, config map[string]any) (*Engine, error) {
	settings, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	path, text := C.CString(model), C.CString(string(settings))
	defer C.free(unsafe.Pointer(path))
	defer C.free(unsafe.Pointer(text))
	engine := &Engine{}
	var failure *C.mlcn_error
	if C.mlcn_engine_create(path, text, nil, &engine.handle, &failure) != C.MLCN_OK {
		return nil, take(failure)
	}
	return engine, nil
}

// Close cancels all requests and frees the engine.
func (e *Engine) Close() { C.mlcn_engine_destroy(e.handle, nil) }

// Chat submits one chat and calls onText for each piece of the answer. One chat at a time: a poll takes
// the outputs of all requests, and several chats would take each other's.
func (e *Engine) Chat(body map[string]any, onText func(string)) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	bytes := C.CString(string(text))
	defer C.free(unsafe.Pointer(bytes))
	var request *C.mlcn_request
	var failure *C.mlcn_error
	if C.mlcn_submit(e.handle, bytes, C.size_t(len(text)), nil, &request, &failure) != C.MLCN_OK {
		return take(failure)
	}
	defer C.mlcn_request_release(request)
	for {
		var outputs *C.mlcn_outputs
		if C.mlcn_poll(e.handle, 16, C.MLCN_FOREVER, &outputs, &failure) != C.MLCN_OK {
			return take(failure)
		}
		ended := outputs == nil // the engine was stopped
		for i := C.size_t(0); i < C.mlcn_outputs_count(outputs); i++ {
			output := C.mlcn_outputs_at(outputs, i)
			if output.text_length > 0 {
				onText(C.GoStringN(output.text, C.int(output.text_length)))
			}
			ended = ended || output.is_final != 0
		}
		C.mlcn_outputs_release(outputs)
		if ended {
			return nil
		}
	}
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: mlcn MODEL QUESTION")
		os.Exit(2)
	}
	engine, err := NewEngine(os.Args[1], map[string]any{"max_num_sequence": 1})
	if err == nil {
		defer engine.Close()
		message := map[string]any{"role": "user", "content": os.Args[2]}
		body := map[string]any{"messages": []any{message}, "temperature": 0, "max_tokens": 64}
		err = engine.Chat(body, func(text string) { fmt.Print(text) })
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println()
}
