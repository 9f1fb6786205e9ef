/** The version of this package, which follows the server's. */
export const VERSION = "0.1.0";
