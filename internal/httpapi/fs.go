package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guest"
)

// FilePath is the part of a request that names a file. It is exported for the
// framework, as SandboxPath is.
type FilePath struct {
	SandboxPath
	Path string `query:"path" required:"true" maxLength:"4096" doc:"Path in the sandbox; a relative one starts in the user's home directory" example:"/home/user/notes.txt"`
	User string `query:"user" maxLength:"64" doc:"Whose home directory relative paths start in, and who owns what is made; default user"`
}

// Resolve refuses a path that no system can have. What a path may reach is the
// sandbox's own business: all of it belongs to the caller.
func (p *FilePath) Resolve(huma.Context) []error {
	if strings.ContainsRune(p.Path, 0) {
		return []error{api.Errorf(api.CodeFileInvalidPath, "the path has a NUL byte").With("field", "path")}
	}
	return nil
}

type fileInfoOutput struct {
	Status int
	Body   api.FileInfo
}

func fileInfo(status int, info api.FileInfo, err error) (*fileInfoOutput, error) {
	if err != nil {
		return nil, err
	}
	return &fileInfoOutput{status, info}, nil
}

func (a *API) statFile(ctx context.Context, in *FilePath) (*fileInfoOutput, error) {
	client, err := a.Control.Guest(ctx, who(ctx), in.ID)
	if err != nil {
		return nil, err
	}
	info, err := client.Stat(ctx, in.Path, in.User)
	return fileInfo(http.StatusOK, info, err)
}

func (a *API) writeFile(_ context.Context, in *writeOptions) (*huma.StreamResponse, error) {
	return raw(func(w http.ResponseWriter, r *http.Request) { a.receiveFile(w, r, in) }), nil
}

// receiveFile writes the body of a request into a file.
func (a *API) receiveFile(w http.ResponseWriter, r *http.Request, in *writeOptions) {
	switch {
	case in.Atomic:
		a.putFile(w, r, &in.FilePath, guest.PutOptions{Atomic: true})
		return
	case in.Offset >= 0:
		a.putFile(w, r, &in.FilePath, guest.PutOptions{Offset: &in.Offset})
		return
	}
	ctx := r.Context()
	client, err := a.Control.Guest(ctx, who(ctx), in.ID)
	if err == nil {
		err = client.WriteFile(ctx, in.Path, in.User, guest.Sized(r.Body, r.ContentLength))
	}
	if err != nil {
		a.refuse(w, r, err)
		return
	}
	info, err := client.Stat(ctx, in.Path, in.User)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, info)
}

func (a *API) removeFile(ctx context.Context, in *FilePath) (*nothing, error) {
	client, err := a.Control.Guest(ctx, who(ctx), in.ID)
	if err != nil {
		return nil, err
	}
	return nil, client.Remove(ctx, in.Path, in.User)
}

type moveInput struct {
	SandboxPath
	User string `query:"user" maxLength:"64" doc:"Whose home directory relative paths start in, and who owns what is made; default user"`
	Body struct {
		From string `json:"from" minLength:"1" maxLength:"4096"`
		To   string `json:"to" minLength:"1" maxLength:"4096"`
	}
}

func (a *API) moveFile(ctx context.Context, in *moveInput) (*fileInfoOutput, error) {
	client, err := a.Control.Guest(ctx, who(ctx), in.ID)
	if err != nil {
		return nil, err
	}
	info, err := client.Move(ctx, in.Body.From, in.Body.To, in.User)
	return fileInfo(http.StatusOK, info, err)
}

type listDirInput struct {
	FilePath
	Depth int `query:"depth" minimum:"1" maximum:"64" default:"1" doc:"Levels of directories to list"`
}

type dirOutput struct{ Body api.DirList }

func (a *API) listDir(ctx context.Context, in *listDirInput) (*dirOutput, error) {
	client, err := a.Control.Guest(ctx, who(ctx), in.ID)
	if err != nil {
		return nil, err
	}
	entries, err := client.ListDir(ctx, in.Path, in.User, in.Depth)
	if err != nil {
		return nil, err
	}
	if entries == nil {
		entries = []api.FileInfo{}
	}
	return &dirOutput{api.DirList{Path: in.Path, Entries: entries}}, nil
}

// makeDir makes a directory; one that is there already is as good.
func (a *API) makeDir(ctx context.Context, in *FilePath) (*fileInfoOutput, error) {
	client, err := a.Control.Guest(ctx, who(ctx), in.ID)
	if err != nil {
		return nil, err
	}
	info, err := client.MakeDir(ctx, in.Path, in.User)
	if errors.Is(err, &api.Error{Code: api.CodeFileExists}) {
		if there, serr := client.Stat(ctx, in.Path, in.User); serr == nil && there.Type == "directory" {
			return fileInfo(http.StatusOK, there, nil)
		}
	}
	return fileInfo(http.StatusCreated, info, err)
}
