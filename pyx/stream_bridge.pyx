# cython: language_level=3, boundscheck=False, wraparound=False
"""StreamBridge passes outputs from the engine's stream-back thread to asyncio tasks and threads.

The engine calls StreamBridge once per batch of outputs and takes the GIL once for it. The bridge
splits the batch by request, wakes each event loop that is concerned once, and puts one item into
the queue of each waiting thread. The consumer does all other work (joining deltas, making objects)
on its own thread, for all outputs that have arrived meanwhile.

A request has one channel and a channel one consumer. The bridge holds a channel until the request's
final output has been passed on or the consumer gives up; it never keeps an engine alive. There are
no locks: every shared structure is changed by single operations under the GIL.
"""

from queue import SimpleQueue

from mlc_native.errors import EngineRequestError, EngineTerminatedError


cdef class CallbackStreamOutput:
    """The new output of one sequence of a request or, in the last one of a request, its usage.

    delta_text: valid UTF-8. delta_token_ids: the tokens of delta_text, without stop tokens.
    delta_logprob_json_strs: one JSON object per token if logprobs were requested, else None.
    finish_reason: None before the end of the sequence. request_final_usage_json_str: set only in
    the last output of a request.
    """

    cdef readonly str delta_text
    cdef readonly list delta_token_ids
    cdef readonly list delta_logprob_json_strs
    cdef readonly str finish_reason
    cdef readonly str request_final_usage_json_str

    def __repr__(self):
        return (
            f"CallbackStreamOutput(delta_text={self.delta_text!r}, "
            f"finish_reason={self.finish_reason!r}, "
            f"request_final_usage_json_str={self.request_final_usage_json_str!r})"
        )


cdef CallbackStreamOutput _usage_output(str usage):
    cdef CallbackStreamOutput output = CallbackStreamOutput.__new__(CallbackStreamOutput)
    output.delta_text = ""
    output.delta_token_ids = []
    output.request_final_usage_json_str = usage
    return output


# A delta is (text, token_ids, logprob_json_strs or None, finish_reason or None).
cdef CallbackStreamOutput _delta_output(tuple delta):
    cdef CallbackStreamOutput output = CallbackStreamOutput.__new__(CallbackStreamOutput)
    output.delta_text = delta[0]
    output.delta_token_ids = delta[1]
    output.delta_logprob_json_strs = delta[2]
    output.finish_reason = delta[3]
    return output


cdef _append_delta(CallbackStreamOutput output, tuple delta):
    output.delta_text += delta[0]
    output.delta_token_ids += delta[1]
    if delta[2] is not None:
        if output.delta_logprob_json_strs is None:
            output.delta_logprob_json_strs = delta[2]
        else:
            output.delta_logprob_json_strs += delta[2]
    if output.finish_reason is None:
        output.finish_reason = delta[3]


cdef class Channel:
    """The outputs of one request on their way to its consumer."""

    cdef readonly str request_id
    # No further output follows: the final output was taken, or an error was raised.
    cdef readonly bint finished
    cdef list _pending  # RequestStreamOutput, oldest first; or an exception as the last item
    cdef Py_ssize_t _taken
    cdef object _error

    def __cinit__(self, str request_id, *args):
        self.request_id = request_id
        self._pending = []

    cdef bint _has_pending(self):
        return self._taken < len(self._pending) or self._error is not None

    cdef list _take(self):
        """Joins all pending deltas. The usage is returned alone, after them. Raises the error that
        ended the request. Requires: an output or an error is pending.
        """
        cdef list outputs = None
        cdef list group
        cdef Py_ssize_t i
        while self._error is None and self._taken < len(self._pending):
            item = self._pending[self._taken]
            if isinstance(item, BaseException):
                if outputs is not None:
                    return outputs
                self._error = item
                break
            if item.is_final:
                if outputs is not None:
                    return outputs
                self.finished = True
                self._clear()
                return [_usage_output(item.request_final_usage_json_str)]
            self._taken += 1
            group = item.unpack_deltas()
            if outputs is None:
                outputs = [_delta_output(delta) for delta in group]
            else:
                for i in range(len(group)):
                    _append_delta(outputs[i], group[i])
            message = item.error_message
            if message:
                self._error = EngineRequestError(self.request_id, message)
                if any([output.delta_text for output in outputs]):
                    return outputs
        if self._error is not None:
            self.finished = True
            self._clear()
            raise self._error
        self._clear()
        return outputs

    cdef _clear(self):
        self._pending = []
        self._taken = 0


cdef class SyncChannel(Channel):
    """A channel whose consumer is a thread."""

    cdef object _queue

    def __cinit__(self, str request_id):
        self._queue = SimpleQueue()

    cdef _push(self, list items):
        self._queue.put(items)

    def next(self):
        """Returns the next outputs, one per sequence; None after the last. Waits without the GIL.

        Raises EngineRequestError if the engine ended the request with an error.
        """
        if self.finished:
            return None
        if not self._has_pending():
            self._pending += self._queue.get()
        while not self._queue.empty():
            self._pending += self._queue.get()
        return self._take()


cdef class AsyncChannel(Channel):
    """A channel whose consumer is a task of the event loop it was opened on."""

    cdef readonly object loop
    cdef object _waiter

    def __cinit__(self, str request_id, loop):
        self.loop = loop

    cdef _push(self, list items):
        # On the loop's thread.
        self._pending += items
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def next(self):
        """The next outputs, one per sequence; None after the last.

        Raises EngineRequestError when the engine ended the request with an error.
        """
        if self.finished:
            return None
        while not self._has_pending():
            self._waiter = self.loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self._take()


def _deliver(dict batch):
    """Delivers an event loop's part of a batch, on the thread of that loop."""
    cdef AsyncChannel channel
    for key, items in batch.items():
        channel = key
        channel._push(items)


cdef class StreamBridge:
    """The engine's stream callback, described at the top of this file.

    Args:
        abort: abort(request_id), called for requests whose event loop is closed. Must not block.
    """

    cdef dict _channels
    cdef object _abort
    cdef bint _closed

    def __cinit__(self, abort=None):
        self._channels = {}
        self._abort = abort

    def open_sync(self, str request_id):
        """Opens a channel for a thread. Raises ValueError if the id is in use."""
        return self._open(SyncChannel(request_id))

    def open_async(self, str request_id, loop):
        """Opens a channel for a task of ``loop``. Raises ValueError if the id is in use."""
        return self._open(AsyncChannel(request_id, loop))

    cdef Channel _open(self, Channel channel):
        if self._closed:
            raise EngineTerminatedError("the engine was terminated")
        if self._channels.setdefault(channel.request_id, channel) is not channel:
            raise ValueError(f'the request id "{channel.request_id}" is in use')
        return channel

    def discard(self, Channel channel):
        """Closes a channel whose consumer gave up. Later outputs of the request are dropped."""
        if self._channels.get(channel.request_id) is channel:
            self._channels.pop(channel.request_id, None)

    def __len__(self):
        return len(self._channels)

    def __call__(self, outputs):
        """The engine's callback. ``outputs`` is a batch of RequestStreamOutput."""
        cdef dict batch = {}
        cdef list items
        for output in outputs:
            request_id = output.request_id
            channel = self._channels.get(request_id)
            if channel is None:
                continue  # the consumer gave up
            items = batch.get(channel)
            if items is None:
                batch[channel] = [output]
            else:
                items.append(output)
            if output.is_final:
                self._channels.pop(request_id, None)
        self._hand_over(batch)

    def close(self, str reason):
        """Ends every open channel with EngineTerminatedError. No output may follow."""
        self._closed = True
        self._abort = None
        channels = list(self._channels.values())
        self._channels.clear()
        self._hand_over({channel: [EngineTerminatedError(reason)] for channel in channels})

    cdef _hand_over(self, dict batch):
        cdef dict by_loop = {}
        cdef dict of_loop
        for channel, items in batch.items():
            if isinstance(channel, SyncChannel):
                (<SyncChannel>channel)._push(items)
            else:
                of_loop = by_loop.get((<AsyncChannel>channel).loop)
                if of_loop is None:
                    by_loop[(<AsyncChannel>channel).loop] = {channel: items}
                else:
                    of_loop[channel] = items
        for loop, of_loop in by_loop.items():
            try:
                loop.call_soon_threadsafe(_deliver, of_loop)
            except RuntimeError:  # the loop is closed, so these will never be read
                self._orphan(of_loop)

    cdef _orphan(self, dict channels):
        for channel in channels:
            if self._channels.get(channel.request_id) is channel:
                self.discard(channel)
                if self._abort is not None:
                    self._abort(channel.request_id)
