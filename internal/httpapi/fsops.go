package httpapi

import (
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guest"
)

// fsInput is a file operation whose body is JSON. It is exported for the
// framework in parts, as SandboxPath is.
type fsInput[T any] struct {
	SandboxPath
	User string `query:"user" maxLength:"64" doc:"Whose home directory relative paths start in, and who owns what is made; default user"`
	Body T
}

type fsOutput[T any] struct{ Body T }

// fsOperation makes the handler of a file operation that the guest's client has
// under the same types.
func fsOperation[I, O any](a *API, do func(*guest.Client, context.Context, I, string) (O, error)) registrar {
	return typed(func(ctx context.Context, in *fsInput[I]) (*fsOutput[O], error) {
		client, err := a.Control.Guest(ctx, who(ctx), in.ID)
		if err != nil {
			return nil, err
		}
		out, err := do(client, ctx, in.Body, in.User)
		if err != nil {
			return nil, err
		}
		return &fsOutput[O]{out}, nil
	})
}

func (a *API) readLink(ctx context.Context, in *FilePath) (*fsOutput[api.LinkTarget], error) {
	client, err := a.Control.Guest(ctx, who(ctx), in.ID)
	if err != nil {
		return nil, err
	}
	out, err := client.Readlink(ctx, in.Path, in.User)
	if err != nil {
		return nil, err
	}
	return &fsOutput[api.LinkTarget]{out}, nil
}

func (a *API) appendFile(_ context.Context, in *FilePath) (*huma.StreamResponse, error) {
	return raw(func(w http.ResponseWriter, r *http.Request) {
		a.putFile(w, r, in, guest.PutOptions{Append: true})
	}), nil
}

// putFile writes the body of a request into a file in a way of its own.
func (a *API) putFile(w http.ResponseWriter, r *http.Request, in *FilePath, o guest.PutOptions) {
	client, err := a.Control.Guest(r.Context(), who(r.Context()), in.ID)
	if err == nil {
		var info api.FileInfo
		if info, err = client.PutFile(r.Context(), in.Path, in.User, o, guest.Sized(r.Body, r.ContentLength)); err == nil {
			writeJSON(w, http.StatusOK, info)
			return
		}
	}
	a.refuse(w, r, err)
}

// archivePath names the directory of an archive.
type archivePath struct {
	SandboxPath
	Path string `query:"path" maxLength:"4096" doc:"Directory in the sandbox; a relative one starts in the user's home directory, default its working directory" example:"/workspace"`
	User string `query:"user" maxLength:"64" doc:"Whose home directory relative paths start in, and who owns what is made; default user"`
}

// Resolve refuses a path that no system can have.
func (p *archivePath) Resolve(ctx huma.Context) []error {
	return (&FilePath{Path: p.Path}).Resolve(ctx)
}

func (a *API) getArchive(ctx context.Context, in *archivePath) (*huma.StreamResponse, error) {
	client, err := a.Control.Guest(ctx, who(ctx), in.ID)
	if err != nil {
		return nil, err
	}
	return raw(func(w http.ResponseWriter, r *http.Request) {
		body, err := client.Archive(r.Context(), in.Path, in.User)
		if err != nil {
			a.fail(w, r, err)
			return
		}
		defer body.Close()
		w.Header().Set("X-Content-Type-Options", "nosniff")
		copyStream(w, r, "application/gzip", body)
	}), nil
}

// copyStream sends bytes whose number nobody knows. What does not come whole
// cuts the connection.
func copyStream(w http.ResponseWriter, r *http.Request, kind string, body io.Reader) {
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(http.StatusOK)
	if _, err := copyFrom(w, body); err != nil {
		requestOf(r.Context()).err = err
		panic(http.ErrAbortHandler)
	}
}

func (a *API) putArchive(_ context.Context, in *archivePath) (*huma.StreamResponse, error) {
	return raw(func(w http.ResponseWriter, r *http.Request) {
		client, err := a.Control.Guest(r.Context(), who(r.Context()), in.ID)
		if err == nil {
			var out api.Extracted
			if out, err = client.Extract(r.Context(), in.Path, in.User, guest.Sized(r.Body, r.ContentLength)); err == nil {
				writeJSON(w, http.StatusOK, out)
				return
			}
		}
		a.refuse(w, r, err)
	}), nil
}

type watchInput struct {
	FilePath
	Recursive bool `query:"recursive" doc:"Also directories within, and new ones"`
}

func (a *API) watchFiles(ctx context.Context, in *watchInput) (*huma.StreamResponse, error) {
	client, err := a.Control.Guest(ctx, who(ctx), in.ID)
	if err != nil {
		return nil, err
	}
	return raw(func(w http.ResponseWriter, r *http.Request) {
		watch, err := client.Watch(r.Context(), in.Path, in.User, in.Recursive)
		if err != nil {
			a.fail(w, r, err)
			return
		}
		defer watch.Close()
		out := newEventStream(w)
		err = out.during(a.KeepAlive, func() error { return a.sendChanges(out, watch, in.ID) })
		if err != nil && err != io.EOF {
			a.endStream(out, w, r, err, func(e *api.Error) any { return e })
		}
	}), nil
}

// sendChanges sends the events of a watch, each named by its type.
func (a *API) sendChanges(out *eventStream, watch *guest.FileWatch, id string) error {
	if err := out.open(); err != nil {
		return err
	}
	touch := a.toucher(id)
	for {
		ev, err := watch.Recv()
		if err != nil {
			return err
		}
		if err := out.send(string(ev.Type), 0, ev); err != nil {
			return err
		}
		touch()
	}
}

// toucher gives a function that says, at most once a second, that bytes of an
// open stream flow.
func (a *API) toucher(id string) func() {
	var last atomic.Int64
	return func() {
		if now := time.Now().UnixNano(); now-last.Load() > int64(time.Second) {
			last.Store(now)
			a.Control.Touch(id)
		}
	}
}

// writeOptions are the ways to write a file that a PUT may ask for.
type writeOptions struct {
	FilePath
	Atomic bool  `query:"atomic" doc:"The file has all of the new bytes or all of the old ones, whatever happens"`
	Offset int64 `query:"offset" minimum:"-1" default:"-1" doc:"Write from here on and drop what was behind; no more than the file's size. What has come stays when the transfer breaks off, so that it can go on from there"`
}

// Resolve refuses two ways at once.
func (o *writeOptions) Resolve(ctx huma.Context) []error {
	if o.Atomic && o.Offset >= 0 {
		return []error{api.Errorf(api.CodeInvalidRequest, "atomic and offset do not go together").With("field", "offset")}
	}
	return o.FilePath.Resolve(ctx)
}

func docAppendFile(op *huma.Operation) {
	op.Description = "The body's bytes are put at the end of the file, which is made if need be."
	binaryBody(op, "The bytes to append")
	content(op, "200", "application/json", ref("FileInfo"), "OK")
}

func docGetArchive(op *huma.Operation) {
	op.Description = "All of a directory, or one file, as a tar.gz stream. Names are relative to the directory. What is neither file, directory nor link is left out."
	content(op, "200", "application/gzip", binary(), "OK")
	errorAnswer(op, "default", "Error")
}

func docPutArchive(op *huma.Operation) {
	op.Description = "The body is a tar or tar.gz of any length, whose files are made below the directory: a name, link or hard link that leads out of it is refused, devices are never made, and what came before a failure stays."
	content(op, "200", "application/json", ref("Extracted"), "OK")
	binaryBody(op, "The archive")
}

func docSignFile(op *huma.Operation) {
	op.Description = "Whoever has the URL may do this one operation on this one file until it expires."
	content(op, "200", "application/json", ref("SignedFile"), "OK")
	errorAnswer(op, "default", "Error")
}

func docWatch(op *huma.Operation) {
	op.Description = "Server-sent events named after their type, each a FileEvent, from when the answer begins until the client leaves or the directory is gone. " +
		"`overflow` says that events were lost."
	content(op, "200", "text/event-stream", ref("FileEvent"), "OK")
}

func binaryBody(op *huma.Operation, description string) {
	op.RequestBody = &huma.RequestBody{
		Description: description,
		Content:     map[string]*huma.MediaType{"application/octet-stream": {Schema: binary()}},
	}
}

// fsRoutes are the file operations beyond reading and writing.
func (a *API) fsRoutes() []route {
	const get, post, put = http.MethodGet, http.MethodPost, http.MethodPut
	return []route{
		{post, sandbox + "/fs/append", anyKey, "appendFile", "files", "Append to a file", typed(a.appendFile), docAppendFile},
		{post, sandbox + "/fs/copy", anyKey, "copyFile", "files", "Copy a file or directory", fsOperation(a, (*guest.Client).Copy), nil},
		{post, sandbox + "/fs/chmod", anyKey, "changeMode", "files", "Set permissions", fsOperation(a, (*guest.Client).Chmod), nil},
		{post, sandbox + "/fs/chown", anyKey, "changeOwner", "files", "Set owner and group", fsOperation(a, (*guest.Client).Chown), nil},
		{post, sandbox + "/fs/symlink", anyKey, "makeLink", "files", "Make a symbolic link", fsOperation(a, (*guest.Client).Symlink), nil},
		{get, sandbox + "/fs/readlink", anyKey, "readLink", "files", "Read a symbolic link", typed(a.readLink), nil},
		{post, sandbox + "/fs/glob", anyKey, "globFiles", "files", "Find files by pattern", fsOperation(a, (*guest.Client).Glob), nil},
		{post, sandbox + "/fs/search", anyKey, "searchFiles", "files", "Search in files", fsOperation(a, (*guest.Client).Search), nil},
		{post, sandbox + "/fs/replace", anyKey, "replaceInFiles", "files", "Replace text in files", fsOperation(a, (*guest.Client).Replace), nil},
		{get, sandbox + "/fs/archive", anyKey, "getArchive", "files", "Read a directory as an archive", typed(a.getArchive), docGetArchive},
		{put, sandbox + "/fs/archive", anyKey, "putArchive", "files", "Extract an archive", typed(a.putArchive), docPutArchive},
		{get, sandbox + "/fs/watch", anyKey, "watchFiles", "files", "Follow changes of a directory", typed(a.watchFiles), docWatch},
		{post, sandbox + "/fs/sign", anyKey, "signFile", "files", "Make a URL that works without a key", typed(a.signFile), docSignFile},
		{get, signedPath, public, "readSigned", "files", "Read a file by a signed URL", typed(a.readSigned), docReadFile},
		{put, signedPath, public, "writeSigned", "files", "Write a file by a signed URL", typed(a.writeSigned), docWriteFile},
	}
}

// streamed reports whether the body of a route is a stream of any length.
func streamed(id string) bool {
	switch id {
	case "writeFile", "importSnapshot", "appendFile", "putArchive", "writeSigned":
		return true
	}
	return false
}
