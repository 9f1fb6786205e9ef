package cli

import (
	"github.com/spf13/cobra"

	"github.com/pandastack/pandastack/internal/gateway"
	"github.com/pandastack/pandastack/internal/server"
)

// addPreviewFlags adds the flags of user traffic and TLS.
func addPreviewFlags(cmd *cobra.Command, p *server.Previews) {
	f := cmd.Flags()
	f.StringVar(&p.Domain, "preview-domain", gateway.DefaultDomain, "domain of previews, {port}-{id}.{domain}; its wildcard leads here")
	f.StringVar(&p.TLSListen, "tls-listen", "", "address to serve API and previews on over TLS, such as 0.0.0.0:443 (default: none)")
	f.StringVar(&p.TLSCert, "tls-cert", "", "file with the certificate, for *.{domain}, and its chain in PEM (default: one is obtained for each host by ACME)")
	f.StringVar(&p.TLSKey, "tls-key", "", "file with the key of --tls-cert in PEM")
	f.StringVar(&p.ACMEEmail, "acme-email", "", "where the authority that gives certificates writes to")
	f.StringVar(&p.ACMECA, "acme-ca", "", "URL of the authority's directory (default: Let's Encrypt)")
	f.StringVar(&p.ACMERoot, "acme-root", "", "file with the certificates in PEM that the authority is known by (default: those of the system)")
	f.StringVar(&p.TrustedProxies, "trusted-proxies", "", "addresses and ranges of proxies in front of the server whose X-Forwarded-* is believed, with commas between them (default: none)")
}

// previewSettings are the strings that addPreviewFlags adds flags for.
func previewSettings(to, from *server.Previews) []setting {
	return []setting{
		{&to.Domain, "preview-domain", from.Domain}, {&to.TLSListen, "tls-listen", from.TLSListen},
		{&to.TLSCert, "tls-cert", from.TLSCert}, {&to.TLSKey, "tls-key", from.TLSKey},
		{&to.ACMEEmail, "acme-email", from.ACMEEmail}, {&to.ACMECA, "acme-ca", from.ACMECA}, {&to.ACMERoot, "acme-root", from.ACMERoot},
		{&to.TrustedProxies, "trusted-proxies", from.TrustedProxies},
	}
}
