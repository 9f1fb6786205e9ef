package snapshot

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/blob"
)

func attachment(name string, data []byte) Attachment {
	return Attachment{Name: name, Size: int64(len(data)), Open: func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(data)), nil
	}}
}

// exported exports a snapshot with files and attachments.
func exported(t testing.TB, files map[string][]byte, with ...Attachment) []byte {
	t.Helper()
	s := open(t, t.TempDir(), nil)
	keep(t, s, "a", files)
	var out bytes.Buffer
	if err := s.Export(t.Context(), "a", &out, with); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// importAs imports, and gives the attachments.
func importAs(t testing.TB, s *Store, id string, r io.Reader) (Record, map[string][]byte, error) {
	t.Helper()
	got := map[string][]byte{}
	rec, err := s.Import(t.Context(), id, r, func(name string, size int64, content io.Reader) error {
		data, err := io.ReadAll(content)
		if err == nil && int64(len(data)) != size {
			t.Errorf("attachment %s gives %d bytes of %d", name, len(data), size)
		}
		if err == nil {
			got[name] = data
		}
		return err
	}, func(data json.RawMessage) (json.RawMessage, error) {
		return json.Marshal(map[string]json.RawMessage{"adapted": data})
	})
	return rec, got, err
}

func TestExportImport(t *testing.T) {
	t.Parallel()
	files := map[string][]byte{"state": []byte("small"), "pages": memory(1, 9<<20+3), "zeros": make([]byte, 5<<20), "empty": {}}
	image := memory(2, 3<<20)
	data := exported(t, files, attachment("image", image), attachment("nothing", nil))
	if len(data) > 9<<20 {
		t.Errorf("the file has %d bytes", len(data))
	}
	s := open(t, t.TempDir(), blob.NewMemory())
	rec, got, err := importAs(t, s, "b", bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if rec.ID != "b" || rec.CreatedAt.Unix() != 1e9 || string(rec.Data) != `{"adapted":{"of":"a"}}` {
		t.Errorf("the record is %+v", rec)
	}
	if !bytes.Equal(got["image"], image) || got["nothing"] == nil || len(got["nothing"]) != 0 {
		t.Errorf("the attachments are %v", sizes(got))
	}
	check(t, s, "b", files)
	_, _, err = importAs(t, s, "b", bytes.NewReader(data))
	wantCode(t, err, api.CodeSnapshotExists)
	check(t, s, "b", files)

	// A snapshot that is only in the blob store is exported like any other.
	pack(t, s, "b")
	evictAll(t, s)
	var out bytes.Buffer
	if err := s.Export(t.Context(), "b", &out, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Import(t.Context(), "c", &out, nil, nil); err != nil {
		t.Fatal(err)
	}
	check(t, s, "c", files)
	wantCode(t, s.Export(t.Context(), "none", io.Discard, nil), api.CodeSnapshotNotFound)
}

// TestImportRefusesDamage cuts a file off and flips bits everywhere in it. None
// of that is kept.
func TestImportRefusesDamage(t *testing.T) {
	t.Parallel()
	data := exported(t, map[string][]byte{"state": []byte("small"), "pages": slicesOf(noise(1, 3*pageSize), make([]byte, 3*pageSize), bytes.Repeat([]byte("text"), 3000))},
		attachment("image", noise(2, 100)))
	s := open(t, t.TempDir(), nil)
	refused := func(what string, at int, file []byte) {
		_, got, err := importAs(t, s, "b", bytes.NewReader(file))
		if api.CodeOf(err) != api.CodeSnapshotCorrupt {
			t.Errorf("%s at %d: %v", what, at, err)
			s.Delete(t.Context(), "b")
		}
		if image, ok := got["image"]; ok && !bytes.Equal(image, noise(2, 100)) {
			t.Errorf("%s at %d: the attachment ends well and is wrong", what, at)
		}
	}
	for at := 0; at < len(data); at += 1 + len(data)/300 {
		refused("cut off", at, data[:at])
		bad := bytes.Clone(data)
		bad[at] ^= 0x10
		refused("flipped", at, bad)
	}
	refused("cut off", len(data)-1, data[:len(data)-1])
	refused("more", len(data), append(bytes.Clone(data), 0))
	for _, dir := range []string{stagingDir, rawDir, tmpDir} {
		if got := filesIn(t, s, dir); len(got) != 0 {
			t.Errorf("%s has %v", dir, got)
		}
	}
	broken := errors.New("the connection broke")
	_, _, err := importAs(t, s, "b", io.MultiReader(bytes.NewReader(data[:len(data)/2]), failing{broken}))
	if !errors.Is(err, broken) {
		t.Errorf("a broken connection: %v", err)
	}
	for _, refusal := range []func() error{
		func() error {
			_, err := s.Import(t.Context(), "b", bytes.NewReader(data), func(string, int64, io.Reader) error { return broken }, nil)
			return err
		},
		func() error {
			_, err := s.Import(t.Context(), "b", bytes.NewReader(data), nil, func(json.RawMessage) (json.RawMessage, error) { return nil, broken })
			return err
		},
	} {
		if err := refusal(); !errors.Is(err, broken) {
			t.Errorf("a refusal of the caller: %v", err)
		}
	}
	if got := filesIn(t, s, stagingDir); len(got) != 0 {
		t.Errorf("staging has %v", got)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func slicesOf(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// TestImportRefusesHostileHeaders makes files that lie about names and sizes.
func TestImportRefusesHostileHeaders(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), nil)
	many := make([]file, maxFiles+1)
	for i := range many {
		many[i].Name = strings.Repeat("a", 1+i%100) + string(rune('a'+i%26))
	}
	for name, h := range map[string]exportHeader{
		"a path":        {Files: []file{{"../../etc/passwd", 1}}},
		"a folder":      {Files: []file{{"a/b", 1}}},
		"the record":    {Files: []file{{recordFile, 1}}},
		"no name":       {Files: []file{{"", 1}}},
		"twice":         {Files: []file{{"a", 1}, {"a", 1}}},
		"negative":      {Files: []file{{"a", -1}}},
		"huge":          {Files: []file{{"a", maxFileSize + 1}}},
		"many":          {Files: many},
		"an attachment": {Attachments: []file{{"../image", 1}}},
		"data":          {Data: json.RawMessage(`"` + strings.Repeat("a", maxInfo) + `"`)},
	} {
		body, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		data := append(bytes.Clone(exportMagic), exportVersion)
		data = append(binary.BigEndian.AppendUint32(data, uint32(len(body))), body...)
		_, _, err = importAs(t, s, "b", bytes.NewReader(data))
		if api.CodeOf(err) != api.CodeSnapshotCorrupt || strings.Contains(err.Error(), "too soon") {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Frames that promise more than they may hold ask for no memory.
	head, err := json.Marshal(exportHeader{Files: []file{{"a", maxFileSize}}})
	if err != nil {
		t.Fatal(err)
	}
	data := append(bytes.Clone(exportMagic), exportVersion)
	data = append(binary.BigEndian.AppendUint32(data, uint32(len(head))), head...)
	for _, frame := range [][]byte{
		{frameRaw, 0xff, 0xff, 0xff, 0xff}, {frameSqueezed, 0, 0, 1, 0, 0xff, 0xff, 0xff, 0xff},
		{frameSqueezed, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1}, {frameZeros, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		{frameZeros, 0, 0, 0, 0, 0, 0, 0, 0}, {frameRaw, 0, 0, 0, 0}, {9},
	} {
		_, _, err := importAs(t, s, "b", bytes.NewReader(append(bytes.Clone(data), frame...)))
		if api.CodeOf(err) != api.CodeSnapshotCorrupt || strings.Contains(err.Error(), "too soon") {
			t.Errorf("frame %v: %v", frame, err)
		}
	}
	bomb := s.codec.enc.EncodeAll(make([]byte, 64<<20), nil)
	frame := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32([]byte{frameSqueezed}, 1000), uint32(len(bomb)))
	_, _, err = importAs(t, s, "b", io.MultiReader(bytes.NewReader(data), bytes.NewReader(frame), bytes.NewReader(bomb)))
	wantCode(t, err, api.CodeSnapshotCorrupt)
	if got := filesIn(t, s, stagingDir); len(got) != 0 {
		t.Errorf("staging has %v", got)
	}
}

func TestExportRefusesAttachmentOfAnotherSize(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), nil)
	keep(t, s, "a", map[string][]byte{"f": []byte("x")})
	short := attachment("image", []byte("short"))
	short.Size = 100
	if err := s.Export(t.Context(), "a", io.Discard, []Attachment{short}); err == nil {
		t.Error("a short attachment was exported")
	}
	lost := Attachment{Name: "image", Open: func() (io.ReadCloser, error) { return os.Open(filepath.Join(t.TempDir(), "none")) }}
	if err := s.Export(t.Context(), "a", io.Discard, []Attachment{lost}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the error is %v", err)
	}
	if err := s.Delete(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if got := filesIn(t, s, rawDir); len(got) != 0 {
		t.Errorf("raw has %v: something is still open", got)
	}
}
