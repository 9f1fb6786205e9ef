package httpapi

import (
	"context"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
)

func (f *wire) GitClone(context.Context, auth.Identity, string, api.GitClone) (api.GitStatus, error) {
	return api.GitStatus{}, f.err
}
func (f *wire) GitStatus(context.Context, auth.Identity, string, api.GitRepo) (api.GitStatus, error) {
	return api.GitStatus{}, f.err
}
func (f *wire) GitDiff(context.Context, auth.Identity, string, api.GitDiff) (api.GitPatch, error) {
	return api.GitPatch{}, f.err
}
func (f *wire) GitAdd(context.Context, auth.Identity, string, api.GitAdd) (api.GitStatus, error) {
	return api.GitStatus{}, f.err
}
func (f *wire) GitCommit(context.Context, auth.Identity, string, api.GitCommitRequest) (api.GitCommit, error) {
	return api.GitCommit{}, f.err
}
func (f *wire) GitBranches(context.Context, auth.Identity, string, api.GitBranchRequest) (api.GitBranches, error) {
	return api.GitBranches{}, f.err
}
func (f *wire) GitCheckout(context.Context, auth.Identity, string, api.GitCheckout) (api.GitStatus, error) {
	return api.GitStatus{}, f.err
}
func (f *wire) GitPull(context.Context, auth.Identity, string, api.GitSync) (api.GitStatus, error) {
	return api.GitStatus{}, f.err
}
func (f *wire) GitPush(context.Context, auth.Identity, string, api.GitSync) (api.GitStatus, error) {
	return api.GitStatus{}, f.err
}
func (f *wire) GitLog(context.Context, auth.Identity, string, api.GitLogRequest) (api.GitLog, error) {
	return api.GitLog{}, f.err
}
