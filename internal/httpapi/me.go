package httpapi

import (
	"context"

	"github.com/pandastack/pandastack/api"
)

type meOutput struct{ Body api.Me }

func (a *API) me(ctx context.Context, _ *nothing) (*meOutput, error) {
	id := who(ctx)
	return &meOutput{api.Me{Org: id.Org, Name: id.Name, Prefix: id.KeyPrefix, Admin: id.Admin}}, nil
}

type tokensOutput struct{ Body api.TokenList }

func (a *API) listTokens(ctx context.Context, _ *nothing) (*tokensOutput, error) {
	l, err := a.Keys.List(ctx, who(ctx))
	if err != nil {
		return nil, err
	}
	if l.Tokens == nil {
		l.Tokens = []api.Token{}
	}
	return &tokensOutput{l}, nil
}

type createTokenInput struct{ Body api.CreateToken }

type newTokenOutput struct{ Body api.NewToken }

func (a *API) createToken(ctx context.Context, in *createTokenInput) (*newTokenOutput, error) {
	t, err := a.Keys.Create(ctx, who(ctx), in.Body)
	if err != nil {
		return nil, err
	}
	return &newTokenOutput{t}, nil
}

type prefixInput struct {
	Prefix string `path:"prefix" maxLength:"64" doc:"Prefix of the key, as listed" example:"pds_1a2b3c4d"`
}

func (a *API) revokeToken(ctx context.Context, in *prefixInput) (*nothing, error) {
	return nil, a.Keys.Revoke(ctx, who(ctx), in.Prefix)
}
