//go:build linux

package guestd

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
)

// maxSources bounds how many files one compose joins.
const maxSources = 10_000

// compose answers POST /files/compose: it joins files into one and deletes
// them.
func (s *Server) compose(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Sources     []string `json:"source_paths"`
		Destination string   `json:"destination"`
		Username    string   `json:"username"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 8<<20)).Decode(&req); err != nil {
		httpFail(w, invalid("the body is not the JSON of a compose request"))
		return
	}
	if len(req.Sources) == 0 || len(req.Sources) > maxSources || req.Destination == "" {
		httpFail(w, invalid(fmt.Sprintf("compose needs a destination and 1 to %d source_paths", maxSources)))
		return
	}
	path, owner, err := s.resolve(req.Destination, req.Username)
	if err != nil {
		httpFail(w, err)
		return
	}
	src := &joined{}
	defer src.close()
	for _, p := range req.Sources {
		full, _, err := s.resolve(p, req.Username)
		if err == nil && full == path {
			err = invalid("the destination is one of the sources")
		}
		var fi os.FileInfo
		if err == nil {
			if fi, err = os.Stat(full); err == nil && !fi.Mode().IsRegular() {
				err = invalid(fmt.Sprintf("path '%s' is not a regular file", full))
			} else if os.IsNotExist(err) {
				err = missing(full)
			}
		}
		if err != nil {
			httpFail(w, err)
			return
		}
		src.paths = append(src.paths, full)
	}
	if err := writeFile(path, owner, nil, src); err != nil {
		httpFail(w, err)
		return
	}
	for _, p := range src.paths {
		_ = os.Remove(p) // a source named twice is gone already
	}
	httpJSON(w, written{Name: filepath.Base(path), Path: path, Type: "file"})
}

// joined reads files one after another, one open at a time.
type joined struct {
	paths []string
	next  int
	cur   *os.File
}

func (j *joined) Read(p []byte) (int, error) {
	for {
		if j.cur == nil {
			if j.next == len(j.paths) {
				return 0, io.EOF
			}
			f, err := os.Open(j.paths[j.next])
			if err != nil {
				return 0, err
			}
			j.cur, j.next = f, j.next+1
		}
		if n, err := j.cur.Read(p); n > 0 || err != io.EOF {
			return n, err
		}
		j.close()
	}
}

func (j *joined) close() {
	if j.cur != nil {
		j.cur.Close()
		j.cur = nil
	}
}
