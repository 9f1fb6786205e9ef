package agent

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/host"
	"github.com/pandastack/pandastack/internal/image"
	"github.com/pandastack/pandastack/internal/snapshot"
)

// An exported snapshot carries its image as an attachment, named by its digest.
const (
	imagePrefix = "image-"
	imageSuffix = ".erofs"
)

func attachmentName(digest string) string {
	return imagePrefix + strings.TrimPrefix(digest, "sha256:") + imageSuffix
}

// attachedDigest reads the name of an attachment.
func attachedDigest(name string) (string, bool) {
	hex, ok := strings.CutPrefix(name, imagePrefix)
	if !ok {
		return "", false
	}
	hex, ok = strings.CutSuffix(hex, imageSuffix)
	digest := "sha256:" + hex
	return digest, ok && digestPattern().MatchString(digest)
}

// Export streams a snapshot, with the image it needs, as one file. It ends when
// the reader is closed.
func (a *Agent) Export(ctx context.Context, id string) (io.ReadCloser, error) {
	rec, err := a.getKept(ctx, id)
	if err != nil {
		return nil, err
	}
	k, err := parseKept(rec.Data)
	if err != nil {
		return nil, err
	}
	img, err := a.cfg.Images.Resolve(k.Image)
	if err != nil {
		return nil, err
	}
	ctx, leave, err := a.during(ctx)
	if err != nil {
		return nil, err
	}
	r, w := io.Pipe()
	e := &export{PipeReader: r, done: make(chan struct{})}
	go func() {
		defer close(e.done)
		defer leave()
		err := a.cfg.Kept.Export(ctx, id, w, []snapshot.Attachment{attach(img)})
		if err != nil && ctx.Err() != nil {
			err = contextError(ctx)
		}
		w.CloseWithError(err)
	}()
	return e, nil
}

// export is a snapshot on its way out.
type export struct {
	*io.PipeReader
	done chan struct{} // closed when its writer has ended
}

// Close implements io.Closer.
func (e *export) Close() error {
	err := e.PipeReader.Close()
	<-e.done
	return err
}

func attach(img image.Image) snapshot.Attachment {
	return snapshot.Attachment{
		Name: attachmentName(img.Digest),
		Size: img.Size,
		Open: func() (io.ReadCloser, error) { return os.Open(img.Path) },
	}
}

// Import reads what Export wrote. Nothing in it is trusted: the image is what its
// digest says or is refused, and the description is checked.
func (a *Agent) Import(ctx context.Context, spec host.SnapshotSpec, file io.Reader) (host.Snapshot, error) {
	if err := a.await(ctx); err != nil {
		return host.Snapshot{}, err
	}
	ctx, leave, err := a.during(ctx)
	if err != nil {
		return host.Snapshot{}, err
	}
	defer leave()
	end, err := a.newSnapshot(ctx, spec.ID)
	if err != nil {
		return host.Snapshot{}, err
	}
	defer end()
	began := time.Now()
	rec, err := a.cfg.Kept.Import(ctx, spec.ID, file, func(name string, size int64, content io.Reader) error {
		return a.takeIn(ctx, name, size, content)
	}, foreign)
	if err == nil {
		err = a.complete(ctx, rec)
	}
	a.observe(Observation{Op: "import", Took: time.Since(began), Err: err})
	if err != nil {
		return host.Snapshot{}, err
	}
	return view(rec)
}

// takeIn puts an attached image into the store, if it is not there.
func (a *Agent) takeIn(ctx context.Context, name string, size int64, content io.Reader) error {
	digest, ok := attachedDigest(name)
	if !ok {
		return api.Errorf(api.CodeSnapshotCorrupt, "the file has an attachment that is no image")
	}
	if _, err := a.cfg.Images.Resolve(digest); err == nil {
		_, err := io.Copy(io.Discard, &contextReader{ctx, content})
		return err
	}
	_, err := a.cfg.Images.Add(ctx, digest, size, content)
	return err
}

// foreign makes the description of an imported snapshot one of this host: the
// sandbox that it was taken of is not known here.
func foreign(data json.RawMessage) (json.RawMessage, error) {
	k, err := parseKept(data)
	if err != nil {
		return nil, err
	}
	k.SandboxID = ""
	return k.encode(), nil
}

// complete refuses an imported snapshot whose image is not here.
func (a *Agent) complete(ctx context.Context, rec snapshot.Record) error {
	k, err := parseKept(rec.Data)
	if err == nil {
		_, err = a.cfg.Images.Resolve(k.Image)
		if api.CodeOf(err) == api.CodeTemplateNotFound {
			err = api.Wrap(api.CodeSnapshotCorrupt, err, "the file does not hold the image that the snapshot needs")
		}
	}
	if err == nil {
		return nil
	}
	ctx, cancel := detached(ctx)
	defer cancel()
	return errors.Join(err, a.cfg.Kept.Delete(ctx, rec.ID))
}
