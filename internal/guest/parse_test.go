package guest

import (
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guest/envdpb"
)

func FuzzLogLine(f *testing.F) {
	f.Add([]byte(`{"time":"2026-01-02T03:04:05Z","stream":"stdout","pid":7,"line":"x"}`))
	f.Add([]byte(`{"stream":"other"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		line, ok := parseLogLine(data)
		if ok && (line.PID < 0 || line.Stream != "stdout" && line.Stream != "stderr" && line.Stream != "system" || !utf8.ValidString(line.Line)) {
			t.Fatalf("%+v", line)
		}
	})
}

func FuzzErrorBody(f *testing.F) {
	f.Add(404, "ENOENT", []byte(`{"code":404,"message":"no"}`))
	f.Add(507, "", []byte(`<html>`))
	f.Add(401, "NOUSER", []byte(`{"message":"a\u0000b"}`))
	f.Fuzz(func(t *testing.T, status int, errno string, body []byte) {
		e := api.AsError(statusError(status, errno, body, areaFile))
		if e.Code == "" || len(e.Message) > 1024 || strings.ContainsAny(e.Message, "\n\x00\x1b") || !utf8.ValidString(e.Message) {
			t.Fatalf("%+v", e)
		}
	})
}

func FuzzMetrics(f *testing.F) {
	f.Add([]byte(`{"ts":1,"cpu_count":2,"cpu_used_pct":3.5,"mem_total":4}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if m, ok := parseMetrics(data); ok && (m.MemTotal < 0 || m.CPUs < 0) {
			t.Fatalf("%+v", m)
		}
	})
}

func FuzzEntry(f *testing.F) {
	seed, _ := proto.Marshal(&envdpb.EntryInfo{Name: "a", Path: "/a", Type: envdpb.FileType_FILE_TYPE_FILE})
	f.Add(seed)
	f.Fuzz(func(t *testing.T, data []byte) {
		var e envdpb.EntryInfo
		if proto.Unmarshal(data, &e) != nil {
			return
		}
		info, ok := entry(&e)
		if ok && (info.Size < 0 || info.Name == ".." || info.Path[0] != '/' || strings.ContainsRune(info.Name+info.Path, 0)) {
			t.Fatalf("%+v", info)
		}
	})
}

func TestExit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in   *envdpb.ProcessEvent_EndEvent
		want Exit
	}{
		{&envdpb.ProcessEvent_EndEvent{ExitCode: 3, Exited: true, Status: "exit status 3"}, Exit{3, "", "exit status 3"}},
		{&envdpb.ProcessEvent_EndEvent{ExitCode: -1, Status: "signal: killed"}, Exit{137, "SIGKILL", "signal: killed"}},
		{&envdpb.ProcessEvent_EndEvent{ExitCode: -1, Status: "signal: aborted (core dumped)"}, Exit{134, "SIGABRT", "signal: aborted (core dumped)"}},
		{&envdpb.ProcessEvent_EndEvent{ExitCode: -1, Status: "who\nknows"}, Exit{255, "", "who knows"}},
	} {
		if got := exitOf(c.in); *got != c.want {
			t.Errorf("%+v, want %+v", *got, c.want)
		}
	}
}

func TestStatusCodes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status int
		errno  string
		want   api.Code
	}{
		{http.StatusInsufficientStorage, "", api.CodeDiskFull},
		{http.StatusNotFound, "", api.CodeFileNotFound},
		{http.StatusBadRequest, "EISDIR", api.CodeFileIsDirectory},
		{http.StatusForbidden, "EACCES", api.CodeFilePermission},
		{http.StatusUnauthorized, "", api.CodeInternal},
		{http.StatusUnauthorized, "NOUSER", api.CodeInvalidRequest},
		{http.StatusFound, "", api.CodeInternal},
	} {
		if got := api.CodeOf(statusError(c.status, c.errno, nil, areaFile)); got != c.want {
			t.Errorf("%d %s: %s, want %s", c.status, c.errno, got, c.want)
		}
	}
}
