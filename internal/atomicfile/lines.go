package atomicfile

import (
	"bytes"
	"io"
	"os"
)

// WholeLines returns the size of a file to which lines are appended. It removes an unfinished last line, which a killed process left.
func WholeLines(file *os.File) (size int64, err error) {
	end, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	const step = 64 << 10
	for size = end; size > 0; {
		part := make([]byte, min(size, step))
		size -= int64(len(part))
		if _, err := file.ReadAt(part, size); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(part, '\n'); i >= 0 {
			size += int64(i) + 1
			break
		}
	}
	if size == end {
		return size, nil
	}
	return size, file.Truncate(size)
}
